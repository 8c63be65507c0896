"""Model repositories: for the server that comes along, and for the stock Triton of Merlin."""

from __future__ import annotations

import py_compile
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from ...foundation.staging import check_apart, staged_directory
from ..limits import EVENTS_PER_BATCH, MAX_EVENTS, Limits
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
CONFIG = "config.pbtxt"
_MODELS = "serving.triton.python_models"
_MODEL_FILE = '''"""Made by merlin-sim; Triton's Python backend needs it installed."""

from merlin_sim.{module} import TritonPythonModel  # noqa: F401
'''


@dataclass(frozen=True)
class Served:
    """What the models of a server answer by."""

    servable: Servable
    """The model, which has to stay where it is."""
    limits: Limits
    """What a request may ask for."""
    version: int | None = None
    """Named by each answer; None where there are no versions."""
    canary: tuple[Canary, Servable] | None = None
    """A version that some users meet, and its servable."""
    histories: str | None = None
    """Where the histories of events that bring none are kept; None for nowhere."""

    @property
    def settings(self) -> dict[str, str]:
        """What a model's config.pbtxt says of it."""
        return {
            **_settings(str(self.servable.path.resolve()), self.limits),
            **({} if self.canary is None else _canary_settings(*self.canary)),
            **({} if self.histories is None else {HISTORIES: self.histories}),
        }


class FurtherModel(Protocol):
    """A model that a server has beside its own, asked in plain JSON at a path of its own."""

    @property
    def name(self) -> str:
        """Its name, for Triton."""

    @property
    def path(self) -> str:
        """Where it is asked over HTTP."""

    def write(self, served: Served, directory: Path) -> None:
        """Write it into a repository.

        Raises:
            MerlinSimError: Where it cannot answer by that.
        """

    def ask(self, body: bytes) -> bytes:
        """Make of a request's body one of Triton's protocol.

        Raises:
            RequestError: Where it is none.
        """

    def tell(self, content: bytes) -> bytes:
        """Make of Triton's answer the body of ours."""


def write_bundled_repository(
    served: Served, directory: Path, log: LogSettings | None = None
) -> None:
    """Write what the bundled server is started on: ``ids`` and ``events``, the model by its path.

    Both are in Triton's Python backend, as that server has no other.

    Args:
        served: What they answer by.
        directory: Where to write.
        log: What is kept of events; None for nothing.
    """
    servable, version = served.servable, served.version or 1
    columns = servable.columns
    settings = _settings(str(servable.path.resolve()), served.limits)
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
            *([] if served.version is None else [TritonTensor(VERSION, "int64", (1,))]),
        ],
        backend="python",
        max_batch_size=MAX_EVENTS,
        preferred_batch_size=EVENTS_PER_BATCH,
        parameters={
            **served.settings,
            **({} if log is None else log_settings(log)),
        },
    )
    write_model(directory, ids, f"{_MODELS}.ids_model", version)
    write_model(directory, events, f"{_MODELS}.events_model", version)


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
            module = f"{_MODELS}.workflow_model" if model.name == WORKFLOW else None
            write_model(directory, model, module)
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


def write_model(directory: Path, model: TritonModel, module: str | None, version: int = 1) -> None:
    """Write a model into a repository.

    Args:
        directory: The repository.
        model: What Triton is told of it.
        module: Whose ``TritonPythonModel`` it is, below the package; None for a model of another
            backend.
        version: Its version.
    """
    of_version = directory / model.name / str(version)
    of_version.mkdir(parents=True, exist_ok=True)
    (directory / model.name / CONFIG).write_text(model.to_text(), encoding="utf-8")
    if module is not None:
        source = of_version / "model.py"
        source.write_text(_MODEL_FILE.format(module=module), encoding="utf-8")
        # What imports it would write this beside it, whatever it is told, and a server that looks
        # at its models would load each of them once more.
        by_hash = py_compile.PycInvalidationMode.CHECKED_HASH
        py_compile.compile(str(source), doraise=True, invalidation_mode=by_hash)


def _copy_without_model(servable: Servable, target: Path) -> None:
    """Copy descriptions and vocabularies, under a manifest of their own."""
    names = [name for name in servable.manifest["files"] if not name.startswith(f"{MODEL}/")]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(servable.path / name, target / name)
    kept = ("model", "checkpoint", "histories", "request")
    write_manifest(target, {name: servable.manifest[name] for name in kept})
