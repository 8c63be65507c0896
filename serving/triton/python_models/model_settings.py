"""What a model inside Triton reads from its config.pbtxt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ....histories.open_store import open_store
from ....histories.store import HistoryStore
from ...events.row_encoder import Encoder, open_encoder
from ...limits import Limits
from ...requests.log_settings import LogSettings
from ...scoring.versions import Canary
from ...servables.servable import Servable

CANARY, CANARY_VERSION, CANARY_SHARE = "canary", "canary_version", "canary_share"
HISTORIES = "histories"
LOG, LOG_SHARE, LOG_MIB, LOG_HASHES = "log", "log_share", "log_mib", "log_hashes_users"
SERVABLE, MAX_CANDIDATES, MAX_HISTORY = "servable", "max_candidates", "max_history"


def read_settings(arguments: Mapping[str, str], with_model: bool = True) -> tuple[Servable, Limits]:
    """Open the servable that Triton's arguments of ``initialize`` name.

    A relative path is taken from the model's version directory.
    """
    values = read_values(arguments)
    here = Path(arguments["model_repository"]) / arguments["model_version"]
    limits = Limits(int(values[MAX_CANDIDATES]), int(values[MAX_HISTORY]))
    return Servable.open(here / values[SERVABLE], with_model=with_model), limits


def read_encoder(arguments: Mapping[str, str]) -> Encoder:
    """Open the servable, and read its vocabularies."""
    return open_encoder(*read_settings(arguments, with_model=False))


def read_histories(arguments: Mapping[str, str]) -> HistoryStore | None:
    """Open the store of the histories that events do not bring; None where there is none."""
    parameters = json.loads(arguments["model_config"])["parameters"]
    if HISTORIES not in parameters:
        return None
    return open_store(parameters[HISTORIES]["string_value"])


def read_canary(arguments: Mapping[str, str]) -> tuple[Canary, Servable] | None:
    """Open the servable that a share of the users meet; None where there is none."""
    values = read_values(arguments)
    if CANARY not in values:
        return None
    canary = Canary(int(values[CANARY_VERSION]), float(values[CANARY_SHARE]))
    return canary, Servable.open(values[CANARY])


def log_settings(settings: LogSettings) -> dict[str, str]:
    """Say what is kept of the requests, as :func:`read_log` reads it."""
    return {
        LOG: str(settings.directory.resolve()),
        LOG_SHARE: str(settings.share),
        LOG_MIB: str(settings.most_mib),
        LOG_HASHES: str(settings.hashes_users),
    }


def read_log(arguments: Mapping[str, str]) -> LogSettings | None:
    """Return what is kept of the requests; None for nothing."""
    values = read_values(arguments)
    if LOG not in values:
        return None
    return LogSettings(
        Path(values[LOG]),
        float(values[LOG_SHARE]),
        int(values[LOG_MIB]),
        values[LOG_HASHES] == str(True),
    )


def read_values(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a model's config.pbtxt."""
    parameters = json.loads(arguments["model_config"])["parameters"]
    return {name: entry["string_value"] for name, entry in parameters.items()}
