"""The sections of a report in which settings are compared: tables of spread, and differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator, Silence
from ..evaluation.scored_rows import TEST_SCORES, ScoredRows
from ..statistics.difference import BEYOND_USERS, NOISE, UNKNOWN, Difference, difference
from ..statistics.settings import Setting
from ..statistics.summary import Summary
from ..statistics.user_bootstrap import UserBootstrap
from .measures import measure_of
from .page import Table, Text

WITH_SCORES = "test_auc"
"""The measure that scores of test rows give."""
HOW_TO_READ = (
    "Std is by one less than the runs. The p of normality is Kolmogorov and Smirnov's, with mean "
    "and deviation of the values themselves (Lilliefors): how often normal values would be as far "
    "from normal; below 0.05, mean and deviation tell little."
)
HOW_TO_READ_DIFFERENCES = (
    "An interval holds the difference in 95 of 100 such comparisons: that over users is what other "
    "test users would change (1,000 sets of them drawn with replacement, the same sets for both "
    "settings), that over seeds what other seeds would change as well. The last column goes by the "
    "last of them that is there: what holds 0 is noise. Without other seeds nothing is called "
    "better or worse: it is beyond what users change. p is of the two-sample Kolmogorov-Smirnov "
    "test. Of many comparisons one in twenty is beyond its interval by chance alone."
)


def spread_table(settings: Sequence[Setting], measure: str) -> Table | None:
    """Tabulate what runs measured, one row a setting; None where no run measured it."""
    form = measure_of(measure)
    rows = []
    for setting in settings:
        values = setting.measured(measure)
        if not values:
            continue
        found = Summary.of(values)
        spread = (found.mean, found.deviation, found.smallest, found.largest)
        normal = "" if found.normality is None else f"{found.normality.p:.3f}"
        rows.append([setting.name, str(found.count), *map(form.shown, spread), normal])
    head = [form.title, "Runs", "Mean", "Std", "Min", "Max", "Normal: p"]
    return Table(head, rows) if rows else None


class Differences:
    """Compares settings with one of them.

    Args:
        settings: at least one.
        measure: what is compared.
        reference: with what; the first by default.
        narrator: hears of the draws of test users, which take a while.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        measure: str,
        reference: Setting | None = None,
        narrator: Narrator | None = None,
    ) -> None:
        """Compare them."""
        self.measure = measure_of(measure)
        self.notes: list[str] = []
        measured = [setting for setting in settings if setting.measured(measure)]
        first = measured[0] if measured else None
        self.reference = reference if reference in measured else first
        self.found: dict[str, Difference] = {}
        if self.reference is None or len(measured) < 2:
            return
        drawn = self._draw(measured, measure, narrator or Silence())
        for setting in measured:
            if setting is not self.reference:
                self.found[setting.name] = difference(
                    setting.measured(measure),
                    self.reference.measured(measure),
                    drawn.get(setting.name),
                    drawn.get(self.reference.name),
                )
        if any(found.over_seeds is None for found in self.found.values()):
            self.notes.append(
                "A setting of one run tells nothing of what another seed would change, which is "
                "often more than what other users would: run each with several seeds."
            )

    def _draw(self, settings: list[Setting], measure: str, narrator: Narrator) -> dict[str, Any]:
        """Compute the AUCs on drawn users of each setting whose runs all have kept scores."""
        import numpy as np

        if measure != WITH_SCORES:
            return {}
        kept = [s for s in settings if all((r.path / TEST_SCORES).is_file() for r in s.runs)]
        if len(kept) < len(settings):
            self.notes.append(
                "Runs without --save_scores kept no scores of test rows: what other test users "
                "would change is not in their intervals."
            )
        if len(kept) < 2:
            return {}
        drawn: dict[str, Any] = {}
        bootstrap: UserBootstrap | None = None
        runs = sum(len(setting.runs) for setting in kept)
        with narrator.phase("drawing test users", runs) as report:
            for setting in kept:
                aucs = []
                for run in setting.runs:
                    rows = ScoredRows.read(run.path / TEST_SCORES)
                    bootstrap = bootstrap or UserBootstrap(rows)
                    try:
                        aucs.append(bootstrap.aucs(rows))
                    except MerlinSimError as error:
                        self.notes.append(f"{setting.name}: {error}")
                        break
                    report(1, len(rows.users))
                else:
                    drawn[setting.name] = np.stack(aucs)
        return drawn

    def verdict(self, name: str) -> str:
        """Say what to make of the difference of a setting."""
        return self.found[name].verdict(self.measure.more_is_better)

    def table(self) -> Table:
        """Tabulate the differences, one row a setting."""
        rows = []
        for name, found in self.found.items():
            p = "" if found.distributions is None else f"{found.distributions.p:.4f}"
            intervals = map(self._shown, (found.over_users, found.over_seeds))
            mean = format(found.mean, "+" + self.measure.form)
            rows.append([name, mean, *intervals, p, self.verdict(name)])
        head = ["", "Difference", "95% over users", "95% over users and seeds", "KS: p", ""]
        return Table(head, rows)

    def _shown(self, interval: tuple[float, float] | None) -> str:
        if interval is None:
            return ""
        return " to ".join(format(end, "+" + self.measure.form) for end in interval)

    def sentences(self) -> list[str]:
        """Say what stands in the table, one line a setting."""
        said = []
        assert self.reference is not None
        for name, found in self.found.items():
            verdict = self.verdict(name)
            mean = format(found.mean, "+" + self.measure.form)
            if verdict == UNKNOWN:
                what = "whether that is noise is not known from single runs without scores"
            elif verdict == BEYOND_USERS:
                what = (
                    f"more than other test users would change: 95% {self._shown(found.interval)}; "
                    "what other seeds would, single runs do not tell"
                )
            elif verdict == NOISE:
                what = f"noise: 95% {self._shown(found.interval)}"
            else:
                what = f"{verdict}: 95% {self._shown(found.interval)}"
            said.append(f"{self.measure.title} of {name}: {mean}, {what}")
        return said


def comparison_parts(differences: Differences) -> list[Text | Table]:
    """Return what a page says of differences."""
    assert differences.reference is not None
    lead = f"{differences.measure.title}, compared with {differences.reference.name}."
    notes = [Text(note) for note in differences.notes]
    return [Text(lead), differences.table(), *notes, Text(HOW_TO_READ_DIFFERENCES)]
