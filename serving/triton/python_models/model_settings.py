"""What a model inside Triton reads from its config.pbtxt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ...events.row_encoder import Encoder, open_encoder
from ...limits import Limits
from ...scoring.versions import Canary
from ...servables.servable import Servable

CANARY, CANARY_VERSION, CANARY_SHARE = "canary", "canary_version", "canary_share"
SERVABLE, MAX_CANDIDATES, MAX_HISTORY = "servable", "max_candidates", "max_history"


def read_settings(arguments: Mapping[str, str], with_model: bool = True) -> tuple[Servable, Limits]:
    """Open the servable that Triton's arguments of ``initialize`` name.

    A relative path is taken from the model's version directory.
    """
    parameters = json.loads(arguments["model_config"])["parameters"]
    values = {name: entry["string_value"] for name, entry in parameters.items()}
    here = Path(arguments["model_repository"]) / arguments["model_version"]
    limits = Limits(int(values[MAX_CANDIDATES]), int(values[MAX_HISTORY]))
    return Servable.open(here / values[SERVABLE], with_model=with_model), limits


def read_encoder(arguments: Mapping[str, str]) -> Encoder:
    """Open the servable, and read its vocabularies."""
    return open_encoder(*read_settings(arguments, with_model=False))


def read_canary(arguments: Mapping[str, str]) -> tuple[Canary, Servable] | None:
    """Open the servable that a share of the users meet; None where there is none."""
    parameters = json.loads(arguments["model_config"])["parameters"]
    if CANARY not in parameters:
        return None
    found, version, share = (
        parameters[name]["string_value"] for name in (CANARY, CANARY_VERSION, CANARY_SHARE)
    )
    return Canary(int(version), float(share)), Servable.open(found)
