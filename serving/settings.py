"""The settings of a server and its models."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..foundation.exceptions import MerlinSimError
from .limits import Limits
from .versions import Canary, ServedVersion

if TYPE_CHECKING:
    from .home_page import Section


@dataclass(frozen=True)
class LogSettings:
    """What of the requests is kept."""

    directory: Path
    share: float = 0.01
    """Of the events, drawn at random."""
    most_mib: int = 64
    """Of all files in the directory together."""
    hashes_users: bool = False
    """Whether a hash stands in place of what the user's columns have."""

    def __post_init__(self) -> None:
        """Gather every problem, raise once."""
        problems = []
        if not 0 < self.share <= 1:
            problems.append(f"`log_share` should be above 0 and at most 1. Received: {self.share}")
        if self.most_mib < 1:
            problems.append(f"`log_mib` should be a positive integer. Received: {self.most_mib}")
        if problems:
            raise MerlinSimError("\n".join(problems))

    def make_directory(self) -> None:
        """Make the directory, which only this user can enter.

        Raises:
            MerlinSimError: Where it cannot be made.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MerlinSimError(
                f"`log_requests`: {self.directory} cannot be made: {error.strerror}"
            ) from error


@dataclass(frozen=True)
class ServerOptions:
    """How the server is reached, and how long it may take."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all of this machine."""
    grpc_host: str = "127.0.0.1"
    """The same for gRPC."""
    http_port: int = 8000
    """0 takes a free one."""
    grpc_port: int = 8001
    """0 takes a free one."""
    metrics_port: int = 8002
    """0 takes a free one."""
    limits: Limits = field(default_factory=Limits)
    max_body: int = 64
    """MiB of one HTTP request's body."""
    max_requests: int = 256
    """Requests in hand at once."""
    request_timeout: float = 60.0
    """Seconds from a request to its answer, Triton's replacement included."""
    token_file: Path | None = None
    """Has the tokens that open the server, one a line; None leaves it open."""
    tls_certificate: Path | None = None
    """With it HTTP, gRPC and metrics are encrypted."""
    tls_key: Path | None = None
    """Its key."""
    standby: bool = True
    """Whether a second Triton is kept ready for when the first one ends."""
    start_timeout: float = 120.0
    """Seconds until each start must be ready."""
    exit_timeout: int = 30
    """Seconds for requests in flight to be answered, once it is to stop."""
    histories: str | None = None
    """Where the histories of events that bring none are kept, and those that are sent go."""
    request_log: LogSettings | None = None
    """What is kept of the requests; None for nothing."""
    verbose: bool = False
    """Whether Triton tells more than warnings and errors."""
    sections: Callable[[], Sequence[Section]] = tuple
    """What the page at the root tells beside what the server knows itself."""

    def __post_init__(self) -> None:
        """Gather every problem, raise once."""
        ports = self.ports
        problems = [
            f"`{name}` should lie in 0..65535. Received: `{name}` = {port}."
            for name, port in ports.items()
            if not 0 <= port <= 65535
        ]
        named = [port for port in ports.values() if port]
        if len(set(named)) < len(named):
            received = ", ".join(f"`{name}` = {port}" for name, port in ports.items())
            problems.append(f"The ports should be different. Received: {received}.")
        for name in (
            "max_body", "max_requests", "request_timeout", "start_timeout", "exit_timeout",
        ):  # fmt: skip
            if getattr(self, name) <= 0:
                problems.append(f"`{name}` should be positive. Received: {getattr(self, name)}.")
        if (self.tls_certificate is None) != (self.tls_key is None):
            problems.append("`tls_certificate` and `tls_key` should be given together.")
        if problems:
            raise MerlinSimError("\n".join(problems))

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """Certificate and key; None for neither."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return self.tls_certificate, self.tls_key

    def host_of(self, name: str) -> str:
        """Where a port is listened on."""
        return self.grpc_host if name == "grpc_port" else self.host

    @property
    def ports(self) -> dict[str, int]:
        """The ports as they were asked for."""
        return {name: getattr(self, name) for name in ("http_port", "grpc_port", "metrics_port")}


SETTINGS = "settings.json"


@dataclass(frozen=True)
class ModelSettings(ServedVersion):
    """What the models of a server answer by.

    Triton's configuration of a model, which every client may read, has none of it.
    """

    limits: Limits = field(default_factory=Limits)
    """What a request may ask for."""
    histories: str | None = None
    """Address of the store that has the histories of events that bring none, password included."""
    log: LogSettings | None = None
    """What is kept of events; None for nothing."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Settings of models beside the server's own."""

    def write(self, folder: Path) -> None:
        """Write the file, for this user alone to read."""
        document = asdict(self)
        place = os.open(folder / SETTINGS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(place, "w", encoding="utf-8") as file:
            json.dump(document, file, default=str)

    @classmethod
    def read(cls, folder: Path) -> ModelSettings:
        """Read the file."""
        found: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        log, canary, other = (found.pop(key) for key in ("log", "canary", "canary_servable"))
        if log is not None:
            log = LogSettings(**{**log, "directory": Path(log["directory"])})
        return cls(
            Path(found.pop("servable")),
            limits=Limits(**found.pop("limits")),
            canary=None if canary is None else Canary(*canary),
            canary_servable=None if other is None else Path(other),
            log=log,
            **found,
        )
