"""Settings of a run: which log becomes what, who does the work, what is refused at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Reporter, Silence
from ...schemas.users_layout import USERS as USERS_LAYOUT
from ..behaviour_columns import BehaviourColumns
from ..feature import ORDER
from ..interactions import exclude_own_time
from ..rules import NONE, SPLIT_RULES, SampleRules, Split
from ..schedulers import Scheduler, SingleProcess
from ..text_lines import FAIL, POLICIES, BadRows
from ..times import NANOSECONDS
from .earlier_histories import EarlierHistories, kept_for_next
from .fitted import FittedWorkflow
from .kept_users import Given
from .user_buckets import LogSource

SAMPLES = "samples"
LAYOUTS = (SAMPLES, USERS_LAYOUT)


@dataclass(frozen=True)
class Settings:
    """A log, the rules by which it becomes a dataset, and who does the work."""

    source: LogSource
    rules: SampleRules
    scheduler: Scheduler = field(default_factory=SingleProcess)
    reporter: Reporter = field(default_factory=Silence)
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


def refuse_what_cannot_be_built(settings: Settings) -> None:
    """Raise a MerlinSimError where settings contradict each other, or name what there is not."""
    if settings.on_bad_rows not in POLICIES:
        raise MerlinSimError(
            f"`on_bad_rows` should be one of {', '.join(POLICIES)}. "
            f"Received: `on_bad_rows` = {settings.on_bad_rows!r}."
        )
    if settings.layout not in LAYOUTS:
        raise MerlinSimError(
            f"`layout` should be {' or '.join(LAYOUTS)}. Received: `layout` = {settings.layout!r}."
        )
    if settings.layout == USERS_LAYOUT and settings.rules.pad:
        raise MerlinSimError(
            "`pad` is of the samples layout: users' histories have no longest length. "
            f"Received: `pad` = True with `layout` = {settings.layout!r}."
        )
    _check_rules(settings)
    _check_what_goes_on(settings)


def split_of(rules: SampleRules, source: LogSource) -> Split | None:
    """The split of the rules, its times as the source has them."""
    split = rules.split
    if split is None or split.test_from is None:
        return split
    texts = {name: getattr(split, name) for name in ("test_from", "validation_from")}
    times = {
        name: None if text is None else source.time_of(text, f"--{name}")
        for name, text in texts.items()
    }
    return split.with_times(**times)


def split_in_words(rules: SampleRules) -> str:
    """Name what of a split is given."""
    given = {name: getattr(rules, name) for name in SPLIT_RULES}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None)


def _check_rules(settings: Settings) -> None:
    """Refuse files, times and labels that the rules do not go with."""
    columns, rules = settings.columns, settings.rules
    if settings.parts is None and rules.test_files is not None:
        raise MerlinSimError(
            "The rules have a split by given files, expected its files too (`--test_path`); or "
            "give another split (`--test_users 0` for each user's last interaction)."
        )
    if settings.parts is not None and rules.test_files is None:
        raise MerlinSimError("Files of test are given, expected rules with `test_files` = True.")
    is_order = columns.features.timestamp_unit == ORDER
    if is_order and columns.needs_unit and settings.source.time_kind() not in NANOSECONDS:
        raise MerlinSimError(
            f"{settings.files}: column {columns.timestamp!r}: its numbers are an order "
            "(`--timestamp_unit order`), and `--features` makes time intervals, cycles, recency or "
            "recent popularity of them: expected a unit: s, ms, us or ns."
        )
    if columns.label is None and not rules.negatives_drawn:
        raise MerlinSimError(
            f"`negatives` = {NONE!r} needs a column of labels (`--label_column`): without one "
            "every row of the log is a positive sample, and none would be negative."
        )


def _check_what_goes_on(settings: Settings) -> None:
    """Refuse histories and vocabularies that cannot go on from an earlier dataset's."""
    earlier, encoded = settings.earlier, settings.columns.features.encoded
    if earlier is not None and settings.fitted is None:
        raise MerlinSimError(
            f"The histories of {earlier.directory} go on in its ids: expected a fitted workflow "
            "too (`--fitted`)."
        )
    if earlier is not None:
        longest = kept_for_next(settings.columns, settings.rules)
        earlier.check(longest, settings.source.time_kind())
        earlier.size()
    if settings.grow and settings.fitted is None:
        raise MerlinSimError(
            "Vocabularies grow from those of a fitted workflow (`--fitted`). Received: none."
        )
    if settings.grow and encoded:
        raise MerlinSimError(
            "`encodings` are counts of the log that was fitted on, which do not grow. "
            f"Received: {', '.join(encoded)} with `grow`. Fit anew, on both logs."
        )
