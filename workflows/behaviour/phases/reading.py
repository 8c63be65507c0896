"""The first phases: interactions are dealt out to buckets, and users with enough of them kept."""

from __future__ import annotations

import shutil
from pathlib import Path

from ....foundation.exceptions import MerlinSimError
from ...continuation.earlier_histories import EarlierHistories
from ...logs.bad_rows import BadRows
from ..kept_users import KeepLongUsers
from ..summary import Summary
from ..user_buckets import BUCKETS, LogDealer, deal_log, first_dealt, number_of_buckets
from .build_settings import BuildSettings

EARLIER_BUCKETS = "earlier buckets"
MOST_BEHAVIOURS = 20
"""That a message names."""


def read_interactions(settings: BuildSettings, work: Path, summary: Summary, placed: bool) -> int:
    """Deal the log's interactions out to buckets by their users; gives how many buckets."""
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
    if settings.earlier is not None:
        _deal_out_earlier(settings, settings.earlier, work, buckets)
    return buckets


def _deal_out_earlier(
    settings: BuildSettings, earlier: EarlierHistories, work: Path, buckets: int
) -> None:
    (work / EARLIER_BUCKETS).mkdir()
    example = first_dealt(work / BUCKETS)
    with settings.narrator.phase("reading earlier histories", len(earlier.files)) as report:
        times, output = settings.source.time_kind(), work / EARLIER_BUCKETS
        for rows in earlier.deal(settings.columns, example, times, buckets, output):
            report(1, rows)


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
    buckets: int,
    in_log: tuple[str, ...],
    summary: Summary,
) -> None:
    """Keep the users with enough interactions, sorted and without repetitions."""
    keep = KeepLongUsers(
        columns=settings.columns,
        shortest=settings.rules.shortest_sequence_for_user,
        longest=settings.rules.kept_for_next,
        equal_times=settings.rules.equal_times,
        buckets=work / BUCKETS,
        earlier=None if settings.earlier is None else work / EARLIER_BUCKETS,
        directory=work,
        history=history,
        item_features=in_log,
        parts=settings.rules.split.columns if settings.rules.split else (),
    )
    with settings.narrator.phase("choosing users", buckets) as report:
        for bucket in settings.scheduler.run(keep, range(buckets)):
            report(1, bucket.rows)
            summary.kept_interactions += bucket.rows
            summary.repeated += bucket.repeated
            summary.same_time += bucket.same_time
            if settings.columns.label is not None and settings.columns.behaviour is None:
                summary.taken = (summary.taken or 0) + bucket.taken
            summary.users += bucket.users
            summary.dropped_users += bucket.dropped_users
            summary.earlier_interactions += bucket.earlier_rows
            summary.late += bucket.late
            summary.changing_users.update(bucket.changing)
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
    shutil.rmtree(work / BUCKETS)
    if settings.earlier is not None:
        shutil.rmtree(work / EARLIER_BUCKETS)


def _together(settings: BuildSettings) -> str:
    if settings.earlier is None:
        return ""
    return f"in the histories of {settings.earlier.directory} and the log together "
