"""Whether a candidate is not worse than the current model: measures, segments, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from ...foundation.progress import Narrator
from ...training.evaluation.scored_rows import ScoredRows
from ...training.statistics.difference import difference
from ...training.statistics.user_bootstrap import DRAWS, OfUsers, UserBootstrap
from .model_columns import Array
from .scored_twice import ALL, ScoredTwice

NOT_WORSE, WORSE, NOT_KNOWN = "not worse", "worse", "not known"
TOO_FEW = "too few"
AUC, LOG_LOSS, CALIBRATION = "auc", "log_loss", "calibration_error"
MORE_IS_BETTER = {AUC: True, LOG_LOSS: False, CALIBRATION: False}
TITLES = {AUC: "AUC", LOG_LOSS: "Log loss", CALIBRATION: "Calibration error"}


class Margins(NamedTuple):
    """By how much a candidate may be worse, absolute; 0 or more."""

    auc: float
    log_loss: float
    calibration_error: float


@dataclass(frozen=True)
class Rules:
    """When a candidate passes."""

    margins: Margins
    least_users: int = 100
    """Users below which a segment is told, and not judged."""
    strict_segments: bool = False
    """Whether a segment has to be known to be not worse; else it must not be known to be worse."""
    draws: int = DRAWS
    """Sets of users that are drawn."""
    seed: int = 0
    """Of the draws."""


@dataclass(frozen=True)
class Judgement:
    """One measure on one segment."""

    segment: str
    measure: str
    rows: int
    users: int
    candidate: float | None
    """None where the measure has no value: an AUC of clicks alone."""
    current: float | None
    difference: float | None
    interval: tuple[float, float] | None
    """Of the difference, 95% over users."""
    margin: float
    verdict: str

    @property
    def is_of_all(self) -> bool:
        """Whether it is of all rows."""
        return self.segment == ALL


@dataclass(frozen=True)
class Gate:
    """What came of a comparison."""

    judgements: tuple[Judgement, ...]
    rules: Rules

    @property
    def reasons(self) -> list[str]:
        """Say what keeps the candidate out; nothing where it passes."""
        return [_reason(found) for found in self.judgements if self._keeps_out(found)]

    @property
    def passed(self) -> bool:
        """Whether the candidate may take the current model's place."""
        return not self.reasons

    def _keeps_out(self, found: Judgement) -> bool:
        if found.verdict in (NOT_WORSE, TOO_FEW):
            return False
        return found.verdict == WORSE or found.is_of_all or self.rules.strict_segments

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "passed": self.passed,
            "reasons": self.reasons,
            "rules": {**asdict(self.rules), "margins": self.rules.margins._asdict()},
            "judgements": [asdict(found) for found in self.judgements],
        }


def judge(scored: ScoredTwice, rules: Rules, narrator: Narrator) -> Gate:
    """Compare the two models, on the same sets of users drawn with replacement.

    Args:
        scored: What both say of each row.
        rules: When the candidate passes.
        narrator: Hears of the draws.
    """
    bootstrap = UserBootstrap(scored.candidate, rules.draws, rules.seed)
    segments: dict[str, Array | None] = {ALL: None, **scored.segments}
    prepared = {
        (segment, measure, side): function
        for segment, of in segments.items()
        for side, rows in (("candidate", scored.candidate), ("current", scored.current))
        for measure, function in _measures(bootstrap, rows, of)
    }
    rows = len(scored.candidate.labels)
    with narrator.phase("drawing test users", rules.draws) as report:
        drawn = bootstrap.draw(prepared, lambda: report(1, rows))
    judgements = []
    for segment, of in segments.items():
        users = scored.candidate.users if of is None else scored.candidate.users[of]
        of_segment = {
            "segment": segment, "rows": len(users), "users": len(np.unique(users))
        }  # fmt: skip
        for measure in MORE_IS_BETTER:
            keys = [(segment, measure, side) for side in ("candidate", "current")]
            values = [prepared[key](bootstrap.once) for key in keys]
            judgements.append(_judge(of_segment, measure, values, [drawn[k] for k in keys], rules))
    return Gate(tuple(judgements), rules)


def _measures(
    bootstrap: UserBootstrap, rows: ScoredRows, of: Array | None
) -> Iterator[tuple[str, OfUsers]]:
    yield AUC, bootstrap.auc(rows, of)
    yield LOG_LOSS, bootstrap.log_loss(rows, of)
    yield CALIBRATION, bootstrap.calibration_error(rows, of)


def _judge(
    of_segment: Mapping[str, Any],
    measure: str,
    values: list[float],
    drawn: list[Array],
    rules: Rules,
) -> Judgement:
    margin: float = getattr(rules.margins, measure)
    if not np.isfinite(values).all():
        return Judgement(
            measure=measure, candidate=None, current=None, difference=None, interval=None,
            margin=margin, verdict=TOO_FEW, **of_segment,
        )  # fmt: skip
    candidate, current = values
    apart = difference([candidate], [current], drawn[0][None], drawn[1][None])
    verdict = _verdict(apart.over_users, margin, MORE_IS_BETTER[measure])
    if of_segment["segment"] != ALL and of_segment["users"] < rules.least_users:
        verdict = TOO_FEW
    return Judgement(
        measure=measure, candidate=candidate, current=current, difference=apart.mean,
        interval=apart.over_users, margin=margin, verdict=verdict, **of_segment,
    )  # fmt: skip


def _verdict(interval: tuple[float, float] | None, margin: float, more_is_better: bool) -> str:
    if interval is None:
        return NOT_KNOWN
    low, high = interval if more_is_better else (-interval[1], -interval[0])
    if low >= -margin:
        return NOT_WORSE
    return WORSE if high < -margin else NOT_KNOWN


def _reason(found: Judgement) -> str:
    title = TITLES[found.measure]
    if found.interval is None or found.difference is None:
        return f"{title} of {found.segment}: whether it is worse is not known"
    said = "is worse by more than" if found.verdict == WORSE else "may be worse by more than"
    low, high = found.interval
    return (
        f"{title} of {found.segment} {said} {found.margin:g}: {found.difference:+.4f}, "
        f"95% {low:+.4f} to {high:+.4f}"
    )
