"""What is to become of which log, and who does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...foundation.progress import Narrator, Silence
from ...schemas.users_layout import USERS as USERS_LAYOUT
from ..behaviour.behaviour_columns import BehaviourColumns
from ..behaviour.equal_times import exclude_own_time
from ..behaviour.rules import SampleRules
from ..engine.schedulers import Scheduler, SingleProcess
from ..logs.log_source import LogSource
from ..logs.text_lines import FAIL, BadRows
from .earlier_histories import EarlierHistories
from .fitted import FittedWorkflow
from .kept_users import Given

SAMPLES = "samples"
LAYOUTS = (SAMPLES, USERS_LAYOUT)


@dataclass(frozen=True)
class Settings:
    """A log, the rules by which it becomes a dataset, and who does the work."""

    source: LogSource
    rules: SampleRules
    scheduler: Scheduler = field(default_factory=SingleProcess)
    narrator: Narrator = field(default_factory=Silence)
    on_bad_rows: str = FAIL
    given: Callable[[], tuple[Given, BadRows]] | None = None
    """Reads item features that do not stand in the log, once the output can be written."""
    layout: str = SAMPLES
    """One row per sample, or one per user: one of ``LAYOUTS``."""
    earlier: EarlierHistories | None = None
    """The histories that the log continues, where it does; a fitted workflow is needed then."""
    parts: Mapping[Path, int] | None = None
    """The part of the split that each file of the source has, as its number among the rules'
    mappings; None where files are no split."""
    fitted: FittedWorkflow | None = None
    """Take the ids of this workflow instead of fitting one: interactions with items that it does
    not know are left out, unknown users get id 0."""
    grow: bool = False
    """Give its unknown keys the next ids, instead."""

    @property
    def columns(self) -> BehaviourColumns:
        """The log's columns."""
        return replace(
            exclude_own_time(self.source.columns, self.rules),
            continued=self.earlier is not None,
            item_values=self.fits,
        )

    @property
    def fits(self) -> bool:
        """Whether something is fitted on the log."""
        return self.fitted is None or self.grow

    @property
    def files(self) -> str:
        """The log's files, as messages name them."""
        return ", ".join(map(str, self.source.files))
