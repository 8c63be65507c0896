"""Model repositories: for the server that comes along, and for the stock Triton of Merlin.

config.pbtxt is written as text here: protobuf's own ``text_format`` needs Triton's ``ModelConfig``,
which comes with tritonclient alone, and exporting works without the extra ``serve``. The tests
read it back with both.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...foundation.files import check_apart, staged_directory
from ..limits import EVENTS_PER_BATCH, MAX_EVENTS, Limits
from ..servable import (
    MODEL,
    ONE_USER_SIGNATURE,
    PLAIN_SIGNATURE,
    SCORE,
    Servable,
    ServedColumns,
    write_manifest,
)
from ..workers.protocol import (
    EVENT,
    SCORES,
    UNSEEN_CANDIDATES,
    UNSEEN_USER,
    VERSION,
    type_of_numbers,
)

TEXT = np.dtype(object)
"""Marks a tensor of strings."""


@dataclass(frozen=True)
class TritonTensor:
    """An input or output; ``dims`` without the batch axis where the model has one."""

    name: str
    dtype: npt.DTypeLike
    dims: tuple[int, ...]

    @property
    def message(self) -> dict[str, Any]:
        """The tensor's message."""
        dtype = np.dtype(self.dtype)
        kind = (
            "STRING" if dtype == TEXT else "BOOL" if dtype.kind == "b" else type_of_numbers(dtype)
        )
        return {"name": self.name, "data_type": f"TYPE_{kind}", "dims": [*self.dims]}


@dataclass(frozen=True)
class TritonModel:
    """One model of a repository."""

    name: str
    inputs: Sequence[TritonTensor]
    outputs: Sequence[TritonTensor]
    backend: str | None = None
    """python or tensorflow; None for an ensemble."""
    max_batch_size: int = 0
    """Rows that Triton may put together along the first axis; 0 where there is no such axis."""
    preferred_batch_size: int | None = None
    """Rows beyond which Triton puts nothing together; a single request may be larger."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    steps: Sequence[Mapping[str, Any]] = ()
    """Of an ensemble, as :func:`_step` makes them."""
    worker: str = ""
    """The class that answers for it in the bundled server; its clients, who may read all else of
    the configuration, do not see it."""

    def to_text(self) -> str:
        """The whole config.pbtxt."""
        message: dict[str, Any] = {"name": self.name}
        message |= {"backend": self.backend} if self.backend else {"platform": "ensemble"}
        message["max_batch_size"] = self.max_batch_size
        message["input"] = [tensor.message for tensor in self.inputs]
        message["output"] = [tensor.message for tensor in self.outputs]
        if self.max_batch_size:
            preferred = self.preferred_batch_size
            batching = {} if preferred is None else {"preferred_batch_size": preferred}
            message["dynamic_batching"] = batching
        values = {name: {"string_value": value} for name, value in self.parameters.items()}
        message["parameters"] = _entries(values)
        if self.steps:
            message["ensemble_scheduling"] = {"step": [*self.steps]}
        return "\n".join(_lines(message)) + "\n"


def _entries(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _step(model: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> dict[str, Any]:
    """Say which of an ensemble's tensors go into a model and come out of it."""
    maps = {"input_map": _entries(inputs), "output_map": _entries(outputs)}
    return {"model_name": model, "model_version": -1, **maps}


def _lines(message: Mapping[str, Any]) -> Iterator[str]:
    """Write a message in protobuf's text form."""
    for name, values in message.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, Mapping):
                yield f"{name} {{"
                yield from (f"  {line}" for line in _lines(value))
                yield "}"
            else:
                is_word = name == "data_type"
                yield f"{name}: {value if is_word else json.dumps(value, ensure_ascii=False)}"


IDS, EVENTS, ONE_USER, WORKFLOW = "ids", "events", "one_user", "workflow"
CONFIG = "config.pbtxt"
SERVABLE, MAX_CANDIDATES, MAX_HISTORY = "servable", "max_candidates", "max_history"
"""Parameters of the stock repository's ``workflow``; the servable's path is from its version's."""
RELAY, WORKFLOW_MODEL = "serving.triton.relay", "serving.triton.workflow_model"
_MODEL_FILE = '''"""Made by merlin-sim; Triton's Python backend needs it installed."""

from merlin_sim.{module} import TritonPythonModel  # noqa: F401
'''


def own_models(servable: Servable, has_versions: bool) -> list[TritonModel]:
    """The models of every bundled server: ``ids`` and ``events``.

    Both are in Triton's Python backend, as that server has no other.
    """
    ids = TritonModel(
        IDS,
        _inputs(servable.columns),
        [TritonTensor(SCORE, "float32", (-1, 1))],
        backend="python",
        worker="merlin_sim.serving.workers.ids_model.IdsModel",
    )
    events = TritonModel(
        EVENTS,
        [TritonTensor(EVENT, TEXT, (1,))],
        [
            TritonTensor(SCORES, "float32", (-1,)),
            TritonTensor(UNSEEN_USER, "bool", (1,)),
            TritonTensor(UNSEEN_CANDIDATES, "bool", (-1,)),
            *([TritonTensor(VERSION, "int64", (1,))] if has_versions else []),
        ],
        backend="python",
        max_batch_size=MAX_EVENTS,
        preferred_batch_size=EVENTS_PER_BATCH,
        worker="merlin_sim.serving.workers.events_model.EventsModel",
    )
    return [ids, events]


def write_stock_repository(
    servable: Servable | Path | str,
    output: Path | str,
    *,
    limits: Limits | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> Path:
    """Write a repository for the stock Triton; it appears whole or not at all.

    - ``ids`` and ``one_user``: the SavedModel's two signatures, in the TensorFlow backend.
    - ``workflow``: a raw event to ids, in the Python backend, with the vocabularies.
    - ``events``: the ensemble of ``workflow`` and ``one_user``.
    """
    opened = servable if isinstance(servable, Servable) else Servable.open(servable)
    output = Path(output)
    check_apart(output, [opened.path])
    with staged_directory(output, overwrite=overwrite, say=say) as directory:
        for model in stock_models(opened, limits or Limits()):
            if model.backend == "tensorflow":
                target = directory / model.name / "1" / "model.savedmodel"
                shutil.copytree(opened.model, target)
            write_model(directory, model, WORKFLOW_MODEL if model.name == WORKFLOW else None)
        _copy_without_model(opened, directory / WORKFLOW / "1" / SERVABLE)
    return output


def stock_models(servable: Servable, limits: Limits) -> list[TritonModel]:
    """The models of a stock repository."""
    columns = servable.columns
    inputs, score = _inputs(columns), TritonTensor(SCORE, "float32", (-1, 1))
    event = TritonTensor(EVENT, TEXT, (1,))
    names = {tensor.name: tensor.name for tensor in inputs}
    steps = [
        _step(WORKFLOW, {EVENT: EVENT}, names),
        _step(ONE_USER, names, {SCORE: SCORES}),
    ]

    def saved_model(name: str, signature: str) -> TritonModel:
        parameters = {"TF_SIGNATURE_DEF": signature}
        return TritonModel(name, inputs, [score], "tensorflow", parameters=parameters)

    settings = {
        SERVABLE: SERVABLE,
        MAX_CANDIDATES: str(limits.max_candidates),
        MAX_HISTORY: str(limits.max_history),
    }
    return [
        saved_model(IDS, PLAIN_SIGNATURE),
        saved_model(ONE_USER, PLAIN_SIGNATURE if servable.takes_rows else ONE_USER_SIGNATURE),
        TritonModel(WORKFLOW, [event], inputs, "python", parameters=settings),
        TritonModel(EVENTS, [event], [TritonTensor(SCORES, "float32", (-1, 1))], steps=steps),
    ]


def _inputs(columns: ServedColumns) -> list[TritonTensor]:
    return [
        TritonTensor(name, np.dtype(dtype), shape)
        for name, (dtype, shape) in columns.inputs.items()
    ]


def write_model(directory: Path, model: TritonModel, module: str | None, version: int = 1) -> None:
    """Write a model into a repository; in the Python backend it is the class of a module."""
    of_version = directory / model.name / str(version)
    of_version.mkdir(parents=True, exist_ok=True)
    (directory / model.name / CONFIG).write_text(model.to_text(), encoding="utf-8")
    if module is not None:
        source = of_version / "model.py"
        source.write_text(_MODEL_FILE.format(module=module), encoding="utf-8")


def _copy_without_model(servable: Servable, target: Path) -> None:
    """Copy descriptions and vocabularies, under a manifest of their own."""
    names = [name for name in servable.manifest["files"] if not name.startswith(f"{MODEL}/")]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(servable.path / name, target / name)
    kept = ("model", "checkpoint", "histories", "request")
    write_manifest(target, {name: servable.manifest[name] for name in kept})
