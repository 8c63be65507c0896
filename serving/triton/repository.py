"""Model repositories: for the server that comes along, and for the stock Triton of Merlin.

config.pbtxt is written as text here: protobuf's own ``text_format`` needs Triton's ``ModelConfig``,
which comes with tritonclient alone, and exporting works without the extra ``serve``. The tests
read it back with both.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
from ..settings import ModelSettings
from ..workers.protocol import EVENT, SCORES, UNSEEN_CANDIDATES, UNSEEN_USER, VERSION
from .triton_process import REPOSITORY

TEXT = np.dtype(object)
"""Marks a tensor of strings."""
_KINDS = {"i": "INT", "u": "UINT", "f": "FP"}


@dataclass(frozen=True)
class TritonTensor:
    """An input or output; ``dims`` without the batch axis where the model has one."""

    name: str
    dtype: npt.DTypeLike
    dims: tuple[int, ...]

    def to_text(self) -> str:
        """The tensor's message.

        >>> TritonTensor("score", "float32", (-1, 1)).to_text()
        '{ name: "score" data_type: TYPE_FP32 dims: [-1, 1] }'
        """
        dtype = np.dtype(self.dtype)
        kind = "STRING" if dtype == TEXT else "BOOL" if dtype.kind == "b" else _numeric(dtype)
        return f"{{ name: {quote(self.name)} data_type: TYPE_{kind} dims: {list(self.dims)} }}"


@dataclass(frozen=True)
class EnsembleStep:
    """A step of an ensemble: a model, and which of the ensemble's tensors go in and come out."""

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def to_text(self) -> str:
        """The step's message."""
        maps = [
            f"{kind} {{ key: {quote(key)} value: {quote(value)} }}"
            for kind, entries in (("input_map", self.inputs), ("output_map", self.outputs))
            for key, value in entries.items()
        ]
        lines = "\n".join(f"      {line}" for line in maps)
        return f"{{\n      model_name: {quote(self.model)} model_version: -1\n{lines}\n    }}"


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
    steps: Sequence[EnsembleStep] = ()

    def to_text(self) -> str:
        """The whole config.pbtxt."""
        lines = [f"name: {quote(self.name)}"]
        lines.append(f"backend: {quote(self.backend)}" if self.backend else 'platform: "ensemble"')
        lines.append(f"max_batch_size: {self.max_batch_size}")
        for kind, tensors in (("input", self.inputs), ("output", self.outputs)):
            listed = ",\n".join(f"  {tensor.to_text()}" for tensor in tensors)
            lines.append(f"{kind} [\n{listed}\n]")
        if self.max_batch_size:
            preferred = self.preferred_batch_size
            stated = "" if preferred is None else f"preferred_batch_size: [{preferred}] "
            lines.append(f"dynamic_batching {{ {stated}}}")
        for name, value in self.parameters.items():
            lines.append(
                f"parameters {{ key: {quote(name)} value {{ string_value: {quote(value)} }} }}"
            )
        if self.steps:
            steps = ",\n".join(f"    {step.to_text()}" for step in self.steps)
            lines.append(f"ensemble_scheduling {{\n  step [\n{steps}\n  ]\n}}")
        return "\n".join(lines) + "\n"


def quote(text: str) -> str:
    """A string in protobuf's text form.

    >>> print(quote('say "b"').replace(chr(92), "/"))
    "say /"b/""
    """
    return json.dumps(text, ensure_ascii=False)


def _numeric(dtype: np.dtype[np.generic]) -> str:
    return f"{_KINDS[dtype.kind]}{8 * dtype.itemsize}"


IDS, EVENTS, ONE_USER, WORKFLOW = "ids", "events", "one_user", "workflow"
CONFIG = "config.pbtxt"
SERVABLE, MAX_CANDIDATES, MAX_HISTORY = "servable", "max_candidates", "max_history"
"""Parameters of the stock repository's ``workflow``; the servable's path is from its version's."""
_MODELS, _WORKERS = "serving.triton", "merlin_sim.serving.workers"
_MODEL_FILE = '''"""Made by merlin-sim; Triton's Python backend needs it installed."""

from merlin_sim.{module} import TritonPythonModel  # noqa: F401
'''


@dataclass(frozen=True)
class ServedModel:
    """A model that the bundled server has."""

    config: TritonModel
    """Its configuration in Triton, which every client may read."""
    worker: str
    """The class that answers for it, see :class:`~..workers.worker.WorkerModel`."""


def own_models(servable: Servable, has_versions: bool) -> list[ServedModel]:
    """The models of every bundled server: ``ids`` and ``events``.

    Both are in Triton's Python backend, as that server has no other.
    """
    ids = TritonModel(
        IDS,
        _inputs(servable.columns),
        [TritonTensor(SCORE, "float32", (-1, 1))],
        backend="python",
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
    )
    return [
        ServedModel(ids, f"{_WORKERS}.ids_model.IdsModel"),
        ServedModel(events, f"{_WORKERS}.events_model.EventsModel"),
    ]


def write_bundled_repository(
    models: Sequence[TritonModel], settings: ModelSettings, folder: Path
) -> None:
    """Write what a bundled server is started on."""
    for model in models:
        write_model(folder / REPOSITORY, model, f"{_MODELS}.relay", settings.number)
    settings.write(folder)


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
        EnsembleStep(ONE_USER, names, {SCORE: SCORES}),
    ]

    def saved_model(name: str, signature: str) -> TritonModel:
        parameters = {"TF_SIGNATURE_DEF": signature}
        return TritonModel(name, inputs, [score], "tensorflow", parameters=parameters)

    settings = _settings(SERVABLE, limits)
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


def _settings(servable: str, limits: Limits) -> dict[str, str]:
    return {
        SERVABLE: servable,
        MAX_CANDIDATES: str(limits.max_candidates),
        MAX_HISTORY: str(limits.max_history),
    }


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
