"""Draws cases by number, has them judged, and makes the ones that fail small."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .attempt import last_lines
from .outcome import Outcome
from .plan import Plan
from .worker import FORK, ROOM, SECONDS, run_all

MOST_SECONDS = 30.0
"""How long a failure is made smaller at most."""

SHRUNK_PER_KIND = 3
"""Failures of one kind that are made small; of the others only the plan is kept."""


class Family(Protocol):
    """Cases of one kind."""

    name: str

    def prepare(self) -> None:
        """Make what all cases share, once, before any worker is forked."""

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a case."""

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Run a case, in a worker."""


@dataclass(frozen=True)
class Case:
    """A numbered case."""

    family: str
    number: int
    plan: Plan


@dataclass
class Failure:
    """A case that failed, and the smallest that fails in the same way."""

    case: Case
    outcome: Outcome
    smallest: Plan


@dataclass
class Tally:
    """How the cases of a family ended."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Limits:
    """What the workers of a campaign are given."""

    seconds: float = SECONDS
    """For one case."""

    room: int | None = ROOM
    start: str = FORK
    shrinks: bool = True
    """Whether failures are made small: not where each try takes minutes."""


class Campaign:
    """All cases of some families."""

    def __init__(
        self, families: dict[str, Family], seed: int, workers: int, limits: Limits | None = None
    ) -> None:
        """Nothing is run yet."""
        self.limits = limits or Limits()
        self.families = families
        self.seed = seed
        self.workers = workers
        self.tallies: dict[str, Tally] = {name: Tally() for name in families}

    def case(self, family: str, number: int) -> Case:
        """Make the case of a number: the same for the same seed, family and number."""
        place = [self.seed, number, *family.encode()]
        return Case(family, number, self.families[family].draw(np.random.default_rng(place)))

    def run(self, wanted: dict[str, list[int]], say: Callable[[str], None]) -> None:
        """Judge the cases of these numbers, then make the failures small."""
        for name in wanted:
            self.families[name].prepare()  # before any worker: a fork has what is imported here
        total, done = sum(map(len, wanted.values())), 0
        limits = self.limits
        for case, outcome in run_all(
            self._judge,
            self._cases(wanted),
            self.workers,
            limits.seconds,
            limits.room,
            limits.start,
        ):
            self._count(case, outcome)
            done += 1
            if outcome.failed:
                say(f"{case.family} case {case.number}: {outcome.kind}: {outcome.said:.200}")
            if done % 100 == 0 or done == total:
                failed = sum(len(tally.failures) for tally in self.tallies.values())
                say(f"{done}/{total} cases, {failed} failures")
        if limits.shrinks:
            self._shrink_all(say)

    def _count(self, case: Case, outcome: Outcome) -> None:
        tally = self.tallies[case.family]
        tally.counts[outcome.kind] += 1
        if outcome.failed:
            tally.failures.append(Failure(case, outcome, case.plan))

    def _cases(self, wanted: dict[str, list[int]]) -> Iterator[Case]:
        """All families in turn, so that an interrupted run has seen some of each."""
        rows = [[(name, number) for number in numbers] for name, numbers in wanted.items()]
        spread = [(i / len(row), entry) for row in rows for i, entry in enumerate(row)]
        for _, (name, number) in sorted(spread):
            yield self.case(name, number)

    def _judge(self, case: Case, phase: Callable[[str], None]) -> Outcome:
        try:
            return self.families[case.family].judge(case.plan, phase)
        except MemoryError:
            raise  # ends the worker, as a crash does
        except Exception as error:
            return Outcome("a fault of the attack", last_lines(error))

    def _shrink_all(self, say: Callable[[str], None]) -> None:
        seen: Counter[tuple[str, str]] = Counter()
        for name, tally in self.tallies.items():
            for failure in tally.failures:
                seen[name, failure.outcome.kind] += 1
                if seen[name, failure.outcome.kind] <= SHRUNK_PER_KIND:
                    say(f"making {name} case {failure.case.number} smaller")
                    self._shrink(failure)

    def _shrink(self, failure: Failure) -> None:
        """Take away what is not needed to fail in the same way."""
        end = time.monotonic() + MOST_SECONDS
        progress = True
        while progress:
            progress = False
            for plan in failure.smallest.smaller():
                if time.monotonic() > end:
                    return
                outcome = self._judge_apart(Case(failure.case.family, failure.case.number, plan))
                if outcome.kind == failure.outcome.kind:
                    failure.smallest, failure.outcome, progress = plan, outcome, True
                    break

    def _judge_apart(self, case: Case) -> Any:
        limits = self.limits
        found = run_all(self._judge, [case], 1, limits.seconds, limits.room, limits.start)
        return next(found)[1]
