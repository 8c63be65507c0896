"""config.pbtxt: what Triton must know of a model, in protobuf's text form.

Protobuf's own ``text_format`` writes only messages whose schema it has, and Triton's
``ModelConfig`` comes with tritonclient alone, which is part of the extra ``serve``. Exporting for
the stock Triton works without that extra, so the text is written here, in 100 lines instead of
17 MB of packages (tritonclient and grpc; 0.1 s of processor time to import); the tests read it
back with ``text_format`` and Triton's schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

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
