"""The settings of a server and its models."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..foundation.exceptions import MerlinSimError
from ..foundation.settings import require_settings, setting
from .limits import Limits
from .versions import Canary, ServedVersion

RETRIEVED = 500
"""Items that are retrieved for a user, unless another number is given."""


@dataclass(frozen=True)
class LogSettings:
    """Settings of the log of requests."""

    log_requests: Path | None = setting(
        None,
        "Directory in which a share of the events is kept, with ids, scores and version, for "
        "`merlin-sim drift`. [default: nothing is kept]",
    )
    log_share: float = setting(0.01, "Share of the events that is kept.", above=0, at_most=1)
    log_mib: int = setting(64, "MiB that are kept at most; the oldest go.", at_least=1)
    hash_users: bool = setting(
        False, "Keep a hash in place of what the user's columns have.", flags="--hash_users"
    )

    def __post_init__(self) -> None:
        problems = []
        given = [self.log_share, self.log_mib, self.hash_users]
        if self.log_requests is None and given != [
            LogSettings.log_share,
            LogSettings.log_mib,
            False,
        ]:
            problems.append(
                "`log_share`, `log_mib` and `hash_users` should be given with `log_requests` only."
            )
        require_settings(self, problems)

    @property
    def directory(self) -> Path:
        """Where it is kept, if it is."""
        assert self.log_requests is not None
        return self.log_requests

    def make_directory(self) -> None:
        """Make the directory, which only this user can enter."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MerlinSimError(
                f"`log_requests`: {self.directory} cannot be made: {error.strerror}"
            ) from error


PORT = {"at_least": 0, "at_most": 65535}


@dataclass(frozen=True)
class ServerOptions:
    """How the server is reached, and how long it may take."""

    host: str = setting(
        "127.0.0.1", "Address to listen on; 0.0.0.0 for every address of this machine."
    )
    grpc_host: str = setting("127.0.0.1", "The same for gRPC.")
    http_port: int = setting(8000, "0 takes a free one.", **PORT)
    grpc_port: int = setting(8001, "0 takes a free one.", **PORT)
    metrics_port: int = setting(8002, "0 takes a free one.", **PORT)
    max_body: int = setting(
        64, "MiB of one HTTP request's body; larger ones are refused.", at_least=1
    )
    max_requests: int = setting(
        256, "Requests in hand at once; more are refused at once.", at_least=1
    )
    request_timeout: float = setting(
        60.0, "Seconds that a request may take, Triton's replacement included.", above=0
    )
    token_file: Path | None = setting(
        None,
        "File with the tokens that open the server, one a line: a request needs the header "
        "`Authorization: Bearer TOKEN`. [default: no token needed]",
    )
    tls_certificate: Path | None = setting(
        None,
        "Certificate (PEM, with those that lead to its root): HTTP, gRPC and metrics are "
        "encrypted.",
    )
    tls_key: Path | None = setting(None, "Its key (PEM).")
    standby: bool = setting(
        True, "Keep a second Triton ready for when the first one ends. [default: standby]"
    )
    start_timeout: float = setting(120.0, "Seconds until each start must be ready.", above=0)
    exit_timeout: int = setting(
        30, "Seconds for requests in flight to be answered once it is to stop.", at_least=1
    )
    verbose: bool = setting(False, "Show what Triton logs.", flags="--verbose")
    limits: Limits = field(default_factory=Limits)
    histories: str | None = None
    """Where the histories of events that bring none are kept, and those that are sent go."""
    log: LogSettings = field(default_factory=LogSettings)

    def __post_init__(self) -> None:
        problems = []
        named = [port for port in self.ports.values() if port]
        if len(set(named)) < len(named):
            received = ", ".join(f"`{name}` = {port}" for name, port in self.ports.items())
            problems.append(f"The ports should be different. Received: {received}.")
        if (self.tls_certificate is None) != (self.tls_key is None):
            problems.append("`tls_certificate` and `tls_key` should be given together.")
        require_settings(self, problems)

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """Certificate and key; None for neither."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return self.tls_certificate, self.tls_key

    @property
    def ports(self) -> dict[str, int]:
        """The ports as they were asked for."""
        return {name: getattr(self, name) for name in ("http_port", "grpc_port", "metrics_port")}


SETTINGS = "settings.json"


@dataclass(frozen=True)
class ModelSettings(ServedVersion):
    """Settings by which the models of a server answer.

    Triton's configuration of a model, which every client may read, has none of it.
    """

    limits: Limits = field(default_factory=Limits)
    histories: str | None = None
    """Address of the store that has the histories of events that bring none, password included."""
    log: LogSettings = field(default_factory=LogSettings)
    endpoints: Mapping[str, Any] = field(default_factory=dict)
    """Settings of models besides the server's own."""
    workers: Mapping[str, str] = field(default_factory=dict)
    """By model, which class answers for it."""
    fork_server: str = ""
    """The socket at which workers are asked for."""

    def write(self, folder: Path) -> None:
        """Write the file, for this user alone to read."""
        document = asdict(self)
        descriptor = os.open(folder / SETTINGS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file, default=str)

    @classmethod
    def read(cls, folder: Path) -> ModelSettings:
        """Read the file."""
        found: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        canary, other = (found.pop(key) for key in ("canary", "canary_servable"))
        return cls(
            Path(found.pop("servable")),
            limits=Limits(**found.pop("limits")),
            canary=None if canary is None else Canary(*canary),
            canary_servable=None if other is None else Path(other),
            log=LogSettings(**found.pop("log")),
            **found,
        )
