"""What is to be built of which log, and by whom: what the phases of a build share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from ....foundation.progress import Narrator, Silence
from ....schemas.users_layout import USERS as USERS_LAYOUT
from ...continuation.earlier_histories import EarlierHistories
from ...engine.schedulers import Scheduler, SingleProcess
from ...logs.bad_rows import FAIL, BadRows
from ...logs.log_source import LogSource
from ..behaviour_columns import BehaviourColumns
from ..equal_times import exclude_own_time
from ..rules import SampleRules

SAMPLES = "samples"
LAYOUTS = (SAMPLES, USERS_LAYOUT)
Features = Mapping[str, tuple[pa.Array, pa.Array, str]]
"""By name: items, their values, and the value of items that are not among them."""


@dataclass(frozen=True)
class BuildSettings:
    """A log, the rules by which it becomes samples, and who does the work."""

    source: LogSource
    rules: SampleRules
    scheduler: Scheduler = field(default_factory=SingleProcess)
    narrator: Narrator = field(default_factory=Silence)
    on_bad_rows: str = FAIL
    features: Callable[[], tuple[Features, BadRows]] | None = None
    """Reads item features that do not stand in the log, once the output can be written."""
    layout: str = SAMPLES
    """One row per sample, or one per user: one of ``LAYOUTS``."""
    earlier: EarlierHistories | None = None
    """The histories that the log continues, where it does; a fitted workflow is needed then."""
    parts: Mapping[Path, int] | None = None
    """Whose rows each file of the source has, as a place among the rules' mappings; None where
    files are no split."""
    steady: tuple[str, ...] = ()
    """Columns of users that were found to have one value for each user."""
    dated: bool = False
    """Whether features of items were found to change."""

    has_equal_times: bool = True
    """Whether some user may have interactions of one time; false once the log has told."""

    @property
    def columns(self) -> BehaviourColumns:
        """The log's columns."""
        columns = exclude_own_time(self.source.columns, self.rules)
        return replace(
            columns,
            continued=self.earlier is not None,
            own_time_excluded=columns.own_time_excluded and self.has_equal_times,
            steady=self.steady,
            dated=self.dated,
        )

    @property
    def files(self) -> str:
        """The log's files, as messages name them."""
        return ", ".join(map(str, self.source.files))
