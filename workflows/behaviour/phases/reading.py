"""The first phases: interactions are dealt out to buckets, and users with enough of them kept."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....foundation.exceptions import MerlinSimError
from ....schemas.users_layout import SAMPLE
from ...continuation.earlier_histories import EarlierHistories
from ...engine.schedulers import written_by_task
from ...logs.bad_rows import BadRows
from ...logs.time_range import LogTimes, TimeRange, joined, known_times
from ...logs.times import text_of_time
from ..kept_users import EVENTS, ITEMS, USERS, KeepLongUsers, read_all
from ..positions import VALIDATION
from ..rules import SampleRules
from ..split import Split
from ..summary import Summary
from ..user_buckets import BUCKETS, DealtFiles, LogDealer, deal_log, number_of_buckets
from .build_settings import BuildSettings

EARLIER_BUCKETS = "earlier buckets"
MOST_BEHAVIOURS = 20
"""That a message names."""


@dataclass(frozen=True)
class DealtLog:
    """The log in buckets, so that no user stands in two of them."""

    buckets: int
    files: DealtFiles
    earlier: DealtFiles | None
    """The earlier histories in the same buckets, where the log continues a dataset."""


def read_interactions(
    settings: BuildSettings, work: Path, summary: Summary, placed: bool
) -> DealtLog:
    """Deal the log's interactions out to buckets by their users."""
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
        placed,
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
        earlier, earlier_times = _deal_out_earlier(
            settings, settings.earlier, work, buckets, dealt.empty_table()
        )
    times = joined(result.times for result in results)
    assert times is not None  # as there are interactions
    summary.times = _known_times(settings, times, earlier_times)
    return DealtLog(buckets, dealt, earlier)


def _known_times(settings: BuildSettings, times: TimeRange, earlier: TimeRange | None) -> LogTimes:
    """Decide what the log's times count, which are those of the histories that it continues."""
    columns, kind = settings.columns, settings.source.time_kind()
    unit = columns.features.timestamp_unit
    all_times = times.joined(earlier)
    known = known_times(all_times, kind, unit, columns.needs_unit, columns.timestamp)
    return replace(known, range=times)


def _deal_out_earlier(
    settings: BuildSettings, earlier: EarlierHistories, work: Path, buckets: int, example: pa.Table
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


def tell_what_behaviours_are_for(settings: BuildSettings, summary: Summary, anew: bool) -> None:
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
    if missing and anew:
        known = [name for name, _ in summary.behaviours.most_common(MOST_BEHAVIOURS)]
        more = ", ..." if len(summary.behaviours) > len(known) else ""
        raise summary.stopped(
            f"{settings.files}: column {columns.behaviour!r}: expected the behaviours "
            f"{', '.join(missing)}, found only {', '.join(known)}{more}.",
        )


def choose_users(
    settings: BuildSettings,
    work: Path,
    history: Path,
    dealt: DealtLog,
    in_log: tuple[str, ...],
    summary: Summary,
) -> None:
    """Keep the users with enough interactions, sorted and without repetitions."""
    keep = KeepLongUsers(
        columns=settings.columns,
        shortest=settings.rules.shortest_sequence_for_user,
        longest=settings.rules.kept_for_next,
        rules=settings.rules,
        buckets=dealt.files,
        earlier=dealt.earlier,
        directory=work,
        history=history,
        item_features=in_log,
        parts=settings.rules.split.columns if settings.rules.split else (),
    )
    with settings.narrator.phase("choosing users", dealt.buckets) as report:
        for bucket in settings.scheduler.run(keep, range(dealt.buckets)):
            report(1, bucket.rows)
            summary.kept_interactions += bucket.rows
            summary.repeated += bucket.repeated
            summary.file_order.add(bucket.order)
            if settings.columns.label is not None and settings.columns.behaviour is None:
                summary.taken = (summary.taken or 0) + bucket.taken
            summary.users += bucket.users
            summary.dropped_users += bucket.dropped_users
            summary.earlier_interactions += bucket.earlier_rows
            summary.late += bucket.late
            summary.changing_users.update(bucket.changing)
            for kind in (EVENTS, ITEMS, USERS) if bucket.rows else ():
                written_by_task(keep.file(kind, bucket.bucket))
            if bucket.mixed:
                raise MerlinSimError(
                    f"{settings.files}: expected that a user's interactions of test come after "
                    "those that validate, and these after those that train; found one of user "
                    f"{bucket.mixed} of a later part."
                )
    if not summary.users:
        raise summary.stopped(
            f"No user has {settings.rules.shortest_sequence_for_user} "
            f"{settings.columns.history_in_words} or more "
            f"{_together(settings)}(`shortest_sequence_for_user`): {summary.interactions:,} "
            f"interactions of {summary.dropped_users:,} users were read from {settings.files}, "
            "nothing is left.",
        )
    shutil.rmtree(dealt.files.directory)
    if dealt.earlier is not None:
        shutil.rmtree(dealt.earlier.directory)


def with_newest_validation(
    settings: BuildSettings, work: Path, split: Split | None, summary: Summary
) -> SampleRules:
    """The rules, with a part that validates where they ask for one and name none.

    Of a split by time it is the newest tenth of what would train.
    """
    rules = settings.rules
    if rules.validation is None or VALIDATION in rules.mappings:
        return rules
    if rules.test_files:
        summary.validation = "nothing validates: give files that do (`--validation_path`)"
        return rules
    assert split is not None
    assert split.test_from is not None
    columns = settings.columns
    events = read_all(work / EVENTS, [columns.user, columns.timestamp, *columns.roles])
    trains = split.parts_of(events, columns.user, columns.timestamp) == 0
    for name in columns.roles:
        roles = columns.roles_of(np.asarray(events[name]).astype(np.int64))
        trains &= (roles & SAMPLE) > 0
    first = newest_tenth(np.asarray(events[columns.timestamp])[trains])
    if first is None:
        summary.validation = "nothing validates: all that trains has one time"
        return rules
    text = text_of_time(first, settings.source.time_kind())
    summary.validation = (
        f"validation: the newest tenth of what would train, from {text} on "
        "(`--validation_from`, or `--validation none`)"
    )
    return replace(rules, validation_from=text)


def newest_tenth(times: npt.NDArray[Any]) -> Any:
    """The time from which on about the newest tenth is; None where all have one time.

    >>> newest_tenth(np.arange(20)), newest_tenth(np.array([1, 2, 2])), newest_tenth(np.ones(2))
    (18, 2, None)
    """
    if not len(times) or times.min() == times.max():
        return None
    first = np.partition(times, int(0.9 * len(times)))[int(0.9 * len(times))]
    if first == times.min():
        first = times[times > first].min()
    return first.item()


def _together(settings: BuildSettings) -> str:
    if settings.earlier is None:
        return ""
    return f"in the histories of {settings.earlier.directory} and the log together "
