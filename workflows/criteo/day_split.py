"""Which rows of a log are trained on, and which validate and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...foundation.exceptions import MerlinSimError

TRAIN, VALIDATION, TEST = "train", "validation", "test"


@dataclass(frozen=True)
class Span:
    """Rows of one file that belong together."""

    mapping: str
    begin: int
    end: int


@dataclass(frozen=True)
class DaySplit:
    """The split of a log whose files follow one another in time.

    As published, the first half of the last file validates and its second half tests.
    """

    validation_files: tuple[str, ...] = ()
    """Names of files that validate as a whole; of the others the last tests as a whole."""
    validation_share: float = 0.0
    """Share of all rows that validate: those before the test's."""
    test_share: float = 0.0
    """Share of all rows that test: the last. 0 for the split by files."""

    def __post_init__(self) -> None:
        """Check the shares."""
        shares = (self.validation_share, self.test_share)
        if not all(0 <= share < 1 for share in shares) or sum(shares) >= 1:
            raise MerlinSimError(
                "`validation_share` and `test_share` should be at least 0 and together below 1. "
                f"Received: {self.validation_share} and {self.test_share}."
            )
        if self.validation_share and not self.test_share:
            raise MerlinSimError("`validation_share` needs a `test_share`. Received: none.")
        if self.validation_files and self.test_share:
            raise MerlinSimError(
                "Either `validation_files` or `test_share` should be given. Received: both."
            )

    @property
    def goes_by_files(self) -> bool:
        """Whether the files' names settle what is trained on, not their numbers of rows."""
        return not self.test_share

    def trained_on(self, files: Sequence[str]) -> list[bool]:
        """Tell of each file whether all of its rows are trained on; for a split by files.

        Raises:
            MerlinSimError: Where a file is not there, or nothing is left to train on.
        """
        unknown = sorted(set(self.validation_files) - set(files))
        if unknown:
            raise MerlinSimError(
                f"`validation_files` should be some of {', '.join(files)}. "
                f"Received: {', '.join(unknown)}."
            )
        others = [name for name in files if name not in self.validation_files]
        if len(others) < 2:
            raise MerlinSimError(
                "Nothing would be left to train on: the last file tests. More files are needed, "
                f"or a `test_share` of the rows. Received: {', '.join(files)}."
            )
        return [name in others[:-1] for name in files]

    def spans(self, files: Sequence[str], rows: Sequence[int]) -> list[list[Span]]:
        """Cut each file's rows: a list for each file."""
        if not self.goes_by_files:
            return self._by_shares(rows)
        spans = []
        for name, count, trains in zip(files, rows, self.trained_on(files), strict=True):
            if trains or name in self.validation_files:
                spans.append([Span(TRAIN if trains else VALIDATION, 0, count)])
            elif self.validation_files:
                spans.append([Span(TEST, 0, count)])
            else:
                half = count // 2
                spans.append([Span(VALIDATION, 0, half), Span(TEST, half, count)])
        return spans

    def _by_shares(self, rows: Sequence[int]) -> list[list[Span]]:
        total = sum(rows)
        test = total - round(total * self.test_share)
        validation = test - round(total * self.validation_share)
        borders = {TRAIN: (0, validation), VALIDATION: (validation, test), TEST: (test, total)}
        spans, first = [], 0
        for count in rows:
            within = {
                mapping: (max(begin - first, 0), min(end - first, count))
                for mapping, (begin, end) in borders.items()
            }
            spans.append([Span(m, *span) for m, span in within.items() if span[0] < span[1]])
            first += count
        return spans
