"""Model repositories: for the server that comes along, and for the stock Triton of Merlin."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ...foundation.staging import check_apart, staged_directory
from ..limits import Limits
from ..requests.log_settings import LogSettings
from ..scoring.versions import Canary, user_of_events
from ..servables.manifest import write_manifest
from ..servables.servable import MODEL, ONE_USER_SIGNATURE, PLAIN_SIGNATURE, SCORE, Servable
from ..servables.served_columns import ServedColumns
from .config_text import TEXT, EnsembleStep, TritonModel, TritonTensor
from .python_models.event_texts import EVENT, SCORES, UNSEEN_CANDIDATES, UNSEEN_USER, VERSION
from .python_models.model_settings import (
    CANARY,
    CANARY_SHARE,
    CANARY_VERSION,
    HISTORIES,
    MAX_CANDIDATES,
    MAX_HISTORY,
    SERVABLE,
    log_settings,
)

IDS, EVENTS, CANDIDATES, WORKFLOW = "ids", "events", "candidates", "workflow"
EVENTS_PER_BATCH = 256
CONFIG = "config.pbtxt"
_MODEL_FILE = '''"""Made by merlin-sim; Triton's Python backend needs it installed."""

from merlin_sim.serving.triton.python_models.{module} import TritonPythonModel  # noqa: F401
'''


def write_bundled_repository(
    servable: Servable,
    limits: Limits,
    directory: Path,
    version: int | None = None,
    canary: tuple[Canary, Servable] | None = None,
    log: LogSettings | None = None,
    histories: str | None = None,
) -> None:
    """Write what the bundled server is started on: ``ids`` and ``events``, the model by its path.

    Both are in Triton's Python backend, as that server has no other.

    Args:
        servable: The model, which has to stay where it is.
        limits: What a request may ask for.
        directory: Where to write.
        version: Named by each answer; None where there are no versions.
        canary: A version that some users' events are scored by, and its servable.
        log: What is kept of events; None for nothing.
        histories: Where the histories of events that bring none are kept; None for nowhere.
    """
    columns = servable.columns
    settings = _settings(str(servable.path.resolve()), limits)
    ids = TritonModel(
        IDS,
        _inputs(columns),
        [TritonTensor(SCORE, "float32", (-1, 1))],
        backend="python",
        parameters=settings,
    )
    events = TritonModel(
        EVENTS,
        [TritonTensor(EVENT, TEXT, (1,))],
        [
            TritonTensor(SCORES, "float32", (-1,)),
            TritonTensor(UNSEEN_USER, "bool", (1,)),
            TritonTensor(UNSEEN_CANDIDATES, "bool", (-1,)),
            *([] if version is None else [TritonTensor(VERSION, "int64", (1,))]),
        ],
        backend="python",
        max_batch_size=EVENTS_PER_BATCH,
        parameters={
            **settings,
            **({} if canary is None else _canary_settings(*canary)),
            **({} if log is None else log_settings(log)),
            **({} if histories is None else {HISTORIES: histories}),
        },
    )
    _write_model(directory, ids, "ids_model", version or 1)
    _write_model(directory, events, "events_model", version or 1)


def write_stock_repository(
    servable: Servable | Path | str,
    output: Path | str,
    *,
    limits: Limits | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> Path:
    """Write a repository for the stock Triton; it appears whole or not at all.

    - ``ids`` and ``candidates``: the SavedModel's two signatures, in the TensorFlow backend.
    - ``workflow``: a raw event to ids, in the Python backend, with the vocabularies.
    - ``events``: the ensemble of ``workflow`` and ``candidates``.

    Args:
        servable: A servable, opened or not.
        output: The directory to make.
        limits: What ``workflow`` refuses.
        overwrite: Replace a directory that holds something.
        say: Told, in a sentence, what was found of an earlier run.
    """
    opened = servable if isinstance(servable, Servable) else Servable.open(servable)
    output = Path(output)
    check_apart(output, [opened.path])
    with staged_directory(output, overwrite=overwrite, say=say) as directory:
        for model in stock_models(opened, limits or Limits()):
            if model.backend == "tensorflow":
                target = directory / model.name / "1" / "model.savedmodel"
                shutil.copytree(opened.model, target)
            _write_model(directory, model, "workflow_model" if model.name == WORKFLOW else None)
        _copy_without_model(opened, directory / WORKFLOW / "1" / SERVABLE)
    return output


def stock_models(servable: Servable, limits: Limits) -> list[TritonModel]:
    """The models of a stock repository."""
    columns = servable.columns
    inputs, score = _inputs(columns), TritonTensor(SCORE, "float32", (-1, 1))
    event = TritonTensor(EVENT, TEXT, (1,))
    names = {tensor.name: tensor.name for tensor in inputs}
    steps = [
        EnsembleStep(WORKFLOW, {EVENT: EVENT}, names),
        EnsembleStep(CANDIDATES, names, {SCORE: SCORES}),
    ]

    def saved_model(name: str, signature: str) -> TritonModel:
        parameters = {"TF_SIGNATURE_DEF": signature}
        return TritonModel(name, inputs, [score], "tensorflow", parameters=parameters)

    settings = _settings(SERVABLE, limits)
    return [
        saved_model(IDS, PLAIN_SIGNATURE),
        saved_model(CANDIDATES, PLAIN_SIGNATURE if servable.takes_rows else ONE_USER_SIGNATURE),
        TritonModel(WORKFLOW, [event], inputs, "python", parameters=settings),
        TritonModel(EVENTS, [event], [TritonTensor(SCORES, "float32", (-1, 1))], steps=steps),
    ]


def _inputs(columns: ServedColumns) -> list[TritonTensor]:
    return [
        TritonTensor(name, np.dtype(dtype), shape)
        for name, (dtype, shape) in columns.inputs.items()
    ]


def _settings(servable: str, limits: Limits) -> dict[str, str]:
    return {
        SERVABLE: servable,
        MAX_CANDIDATES: str(limits.max_candidates),
        MAX_HISTORY: str(limits.max_history),
    }


def _canary_settings(canary: Canary, servable: Servable) -> dict[str, str]:
    user_of_events(servable)  # it goes by users
    return {
        CANARY: str(servable.path.resolve()),
        CANARY_VERSION: str(canary.number),
        CANARY_SHARE: str(canary.share),
    }


def _write_model(directory: Path, model: TritonModel, module: str | None, version: int = 1) -> None:
    of_version = directory / model.name / str(version)
    of_version.mkdir(parents=True, exist_ok=True)
    (directory / model.name / CONFIG).write_text(model.to_text(), encoding="utf-8")
    if module is not None:
        (of_version / "model.py").write_text(_MODEL_FILE.format(module=module), encoding="utf-8")


def _copy_without_model(servable: Servable, target: Path) -> None:
    """Copy descriptions and vocabularies, under a manifest of their own."""
    names = [name for name in servable.manifest["files"] if not name.startswith(f"{MODEL}/")]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(servable.path / name, target / name)
    kept = ("model", "checkpoint", "histories", "request")
    write_manifest(target, {name: servable.manifest[name] for name in kept})
