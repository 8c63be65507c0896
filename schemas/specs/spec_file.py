"""Reading a FeatureSpec: its shape first, then every check of what it says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...foundation.exceptions import SpecError
from ..doubts import warn_of_doubts
from .feature_spec import FeatureSpec
from .feature_spec_checks import gather_problems
from .feature_spec_reader import feature_spec_from_plain, read_feature_spec


def read_spec(
    path: Path | str, *, check_files: bool = True, model: str | None = None
) -> FeatureSpec:
    """Read and check a spec.

    Args:
        path: The YAML file; the paths in it are relative to its directory.
        check_files: Whether the data files it names must exist.
        model: The family of models (``sim``, ``dlrm``, ...) whose channels it must have.

    Raises:
        SpecError: With every problem found, each with its key path and line.
    """
    reading = read_feature_spec(Path(path))
    directory = Path(path).parent if check_files else None
    problems = gather_problems(reading, directory, model)
    if problems or reading.spec is None:
        raise SpecError(path, problems)
    warn_of_doubts(reading.spec, directory)
    return reading.spec


def spec_from_plain(sections: Mapping[str, Any]) -> FeatureSpec:
    """Build a spec from the sections as YAML or JSON hold them.

    >>> from merlin_sim.schemas.specs.feature_spec import Chunk, Feature
    >>> spec = FeatureSpec(
    ...     feature_spec={"label": Feature("bool")},
    ...     source_spec={"train": (Chunk("csv", ("label",), ("train.csv",)),)},
    ...     channel_spec={"label": ("label",)},
    ... )
    >>> spec_from_plain(spec.to_dict()) == spec
    True

    Raises:
        SpecError: Where the sections have the wrong shape. Files, channels and mappings are
            not looked at: a spec under construction may lack them.
    """
    reading = feature_spec_from_plain(sections)
    if reading.problems or reading.spec is None:
        raise SpecError("feature spec", reading.problems)
    return reading.spec
