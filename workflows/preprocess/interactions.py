"""Interactions are read and dealt out by user, and users with enough of them are kept."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ...foundation.exceptions import MerlinSimError
from ..engine.schedulers import written_by_task
from ..logs.text_lines import BadRows
from ..logs.times import LogTimes, TimeRange, joined, known_times
from .earlier_histories import EarlierHistories
from .graph import place_columns
from .kept_users import EVENTS, ITEMS, Given, KeepLongUsers
from .summary import Summary
from .user_buckets import BUCKETS, DealtFiles, LogDealer, deal_log, number_of_buckets

if TYPE_CHECKING:
    from .settings import Settings

EARLIER_BUCKETS = "earlier buckets"
MOST_BEHAVIOURS = 20
"""That a message names."""


@dataclass(frozen=True)
class Interactions:
    """The log in buckets, so that no user stands in two of them."""

    settings: Settings
    summary: Summary
    work: Path
    history: Path
    """Where to write what the next day begins with."""
    given: Given
    """Item features that do not stand in the log."""
    buckets: int
    files: DealtFiles
    earlier: DealtFiles | None
    """The earlier histories in the same buckets, where the log continues a dataset."""

    def choose_users(self) -> None:
        """Keep the users with enough interactions, and write their rows by bucket."""
        settings, summary, rules = self.settings, self.summary, self.settings.rules
        keep = KeepLongUsers(
            columns=settings.columns,
            rules=rules,
            buckets=self.files,
            earlier=self.earlier,
            directory=self.work,
            history=self.history,
            given=self.given,
            parts=rules.split.columns if rules.split else (),
            counts_items=settings.fitted is not None,
        )
        with settings.narrator.phase("choosing users", self.buckets) as report:
            for bucket in settings.scheduler.run(keep, range(self.buckets)):
                report(1, bucket.rows)
                summary.add_bucket(bucket, settings.columns)
                kinds = [EVENTS, *([ITEMS] if keep.counts_items else [])]
                for kind in kinds if bucket.rows else ():
                    written_by_task(keep.file(kind, bucket.bucket))
                if bucket.mixed:
                    raise MerlinSimError(
                        f"{settings.files}: expected that a user's interactions of test come "
                        "after those that validate, and these after those that train; found one "
                        f"of user {bucket.mixed} of a later part."
                    )
        if not summary.users:
            raise summary.stopped(
                f"No user has {rules.shortest_sequence_for_user} "
                f"{settings.columns.history_in_words} or more "
                f"{_together(settings)}(`shortest_sequence_for_user`): {summary.interactions:,} "
                f"interactions of {summary.dropped_users:,} users were read from "
                f"{settings.files}, nothing is left.",
            )
        for files in (self.files, self.earlier):
            if files is not None:
                shutil.rmtree(files.directory)


def read_interactions(
    settings: Settings, work: Path, history: Path, given: Given, summary: Summary
) -> Interactions:
    """Deal the log's interactions out to buckets by their users.

    Args:
        settings: The log, and what is to become of it.
        work: Where to write.
        history: Where to write what the next day begins with.
        given: Item features that do not stand in the log.
        summary: Gets what was counted.
    """
    more = 0 if settings.earlier is None else settings.earlier.size()
    buckets = number_of_buckets(settings.source.size() + more)
    (work / BUCKETS).mkdir()
    dealer = LogDealer(
        settings.source,
        settings.columns,
        work / BUCKETS,
        buckets,
        settings.on_bad_rows,
        settings.parts,
        bool(place_columns(settings.columns)),
    )
    with settings.narrator.phase("reading interactions", settings.source.size()) as report:
        results = deal_log(dealer, settings.scheduler.run, report)
    summary.interactions = sum(result.rows for result in results)
    for result in results:
        summary.behaviours += result.behaviours
    blocks = settings.source.blocks()
    bad_rows: dict[Path, BadRows] = {}
    lines: dict[Path, int] = {}
    for result in sorted(results, key=lambda result: result.block):
        path = blocks[result.block].path
        bad = bad_rows.setdefault(path, BadRows(str(path)))
        before = lines.setdefault(path, blocks[result.block].header)
        bad.add(result.bad, before)
        lines[path] = before + result.lines
    summary.bad_rows += bad_rows.values()
    if not summary.interactions:
        raise summary.stopped(f"{settings.files}: expected interactions, found none.")
    dealt = DealtFiles(work / BUCKETS, tuple(result.file for result in results))
    earlier, earlier_times = None, None
    if settings.earlier is not None:
        example = dealt.empty_table()
        earlier, earlier_times = _deal_earlier(settings, settings.earlier, work, buckets, example)
    times = joined(result.times for result in results)
    assert times is not None  # as there are interactions
    summary.times = _known_times(settings, times, earlier_times)
    tell_what_behaviours_are_for(settings, summary)
    return Interactions(settings, summary, work, history, given, buckets, dealt, earlier)


def _known_times(settings: Settings, times: TimeRange, earlier: TimeRange | None) -> LogTimes:
    """Decide what the log's times count, which are those of the histories that it continues."""
    columns, kind = settings.columns, settings.source.time_kind()
    unit = columns.features.timestamp_unit
    all_times = times.joined(earlier)
    known = known_times(all_times, kind, unit, columns.needs_unit, columns.timestamp)
    return replace(known, range=times)


def _deal_earlier(
    settings: Settings, earlier: EarlierHistories, work: Path, buckets: int, example: pa.Table
) -> tuple[DealtFiles, TimeRange | None]:
    """Deal the earlier rows out as well; gives from when to when they are, too."""
    ranges = []
    (work / EARLIER_BUCKETS).mkdir()
    with settings.narrator.phase("reading earlier histories", len(earlier.files)) as report:
        times, output = settings.source.time_kind(), work / EARLIER_BUCKETS
        for rows, found in earlier.deal(settings.columns, example, times, buckets, output):
            report(1, rows)
            ranges.append(found)
    files = DealtFiles(output, tuple(path.name for path in output.glob("*.arrow")))
    return files, joined(ranges)


def tell_what_behaviours_are_for(settings: Settings, summary: Summary) -> None:
    """Say what each behaviour is for; refuse those that a log to be fitted on lacks."""
    columns = settings.columns
    if columns.behaviour is None:
        return
    for name in summary.behaviours:
        parts = {
            "history": columns.history_behaviours,
            "predicted": columns.target_behaviours,
        }
        played = [part for part, names in parts.items() if not names or name in names]
        if played:
            summary.roles[name] = " and ".join(played)
    named = (*columns.history_behaviours, *columns.target_behaviours)
    missing = [name for name in dict.fromkeys(named) if name not in summary.behaviours]
    if missing and settings.fitted is None:
        known = [name for name, _ in summary.behaviours.most_common(MOST_BEHAVIOURS)]
        more = ", ..." if len(summary.behaviours) > len(known) else ""
        raise summary.stopped(
            f"{settings.files}: column {columns.behaviour!r}: expected the behaviours "
            f"{', '.join(missing)}, found only {', '.join(known)}{more}.",
        )


def _together(settings: Settings) -> str:
    if settings.earlier is None:
        return ""
    return f"in the histories of {settings.earlier.directory} and the log together "
