"""The spellings of a dtype in a feature spec, and what each of them means.

A spec is written by people who use PyTorch, TensorFlow, NumPy or Merlin, so ``torch.int8``,
``tf.float32``, ``np.int64``, ``<i4`` and ``bool`` are all understood; how a spec spells a dtype is
kept as it came.
"""

from __future__ import annotations

import re

LARGEST_NUMBER = (2 - 2**-23) * 2.0**127
"""Models compute in 32 bits: what is beyond it would be infinite there."""
FRAMEWORKS = ("torch.", "tf.", "tensorflow.", "np.", "numpy.", "cudf.", "merlin.", "md.")

_CANONICAL = frozenset(
    ["bool", "str", "object", "bfloat16", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + ["datetime64"]
    + [f"datetime64[{unit}]" for unit in ("Y", "M", "D", "h", "m", "s", "ms", "us", "ns")]
)
_SYNONYMS = {
    "boolean": "bool",
    "bool_": "bool",
    "string": "str",
    "int": "int64",
    "long": "int64",
    "short": "int16",
    "byte": "int8",
    "half": "float16",
    "float": "float64",
    "double": "float64",
}
# PyTorch's `torch.int` and `torch.float` have 32 bits, Python's and NumPy's have 64.
_TORCH_SYNONYMS = {"int": "int32", "float": "float32"}
_NUMPY_CODE = re.compile(r"[<>=|]?(?:(b1|\?)|([iuf])([1248]))")
_NUMPY_KINDS = {"i": "int", "u": "uint", "f": "float"}


def canonical_dtype(spelling: str) -> str | None:
    """Return the dtype's canonical (NumPy's) name, or None where the spelling means nothing.

    >>> [canonical_dtype(s) for s in ("torch.int8", "tf.float32", "<i4", "bool", "torch.float")]
    ['int8', 'float32', 'int32', 'bool', 'float32']
    >>> canonical_dtype("int99") is None
    True
    """
    framework = next((prefix for prefix in FRAMEWORKS if spelling.startswith(prefix)), "")
    name = spelling.removeprefix(framework)
    if framework == "torch.":
        name = _TORCH_SYNONYMS.get(name, name)
    name = _SYNONYMS.get(name, name)
    if name in _CANONICAL:
        return name
    code = None if framework else _NUMPY_CODE.fullmatch(name)
    if code is None or (code[2] == "f" and code[3] == "1"):
        return None
    return "bool" if code[1] else f"{_NUMPY_KINDS[code[2]]}{8 * int(code[3])}"


def is_integer(spelling: str) -> bool:
    """Return whether the dtype can hold ids."""
    name = canonical_dtype(spelling) or ""
    return name.startswith(("int", "uint"))


def is_number(spelling: str) -> bool:
    """Return whether the dtype holds numbers or truth values."""
    name = canonical_dtype(spelling) or ""
    return is_integer(spelling) or name.startswith(("float", "bfloat", "bool"))
