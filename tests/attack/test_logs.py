"""A raw log in any legal form becomes the samples of the rules, today and on the days after."""

import gzip
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from merlin_sim.scripts.main import cli

from .damage import ANY_NUMBER, CONTENT_DAMAGES
from .judged import Answer, InFolder, answer, share
from .logs import (
    Learned,
    Refused,
    Row,
    Sample,
    Shape,
    kept_users,
    learn,
    rows_of,
    samples_of,
    shapes,
    stored_samples,
    write_log,
)

pytestmark = pytest.mark.slow
SAID = ("No user has", "expected samples in", "two items")
"""What a message says where no file is at fault."""


def preprocess(*words: object) -> None:
    validation = "newest" if "--validation_from" in words else "none"
    more = ["--order_of_equal_times", "log", "--validation", validation]
    more += ["--feature_values", "latest"]
    words = ("preprocess", "log", *map(str, words), *more, "--scheduler", "single")
    cli.main(list(words), standalone_mode=False)


def first_day(rows: Sequence[Row], shape: Shape) -> tuple[Learned, Counter[Sample]]:
    learned = learn(rows, shape)
    wanted = samples_of(rows, shape, learned)
    if shape.split:
        need_samples(wanted, "train", "test", *["validation"] * (shape.split[0] is not None))
    return learned, wanted


def need_samples(wanted: Counter[Sample], *mappings: str) -> None:
    if not set(mappings) <= {sample[0] for sample in wanted}:
        raise Refused("expected samples in")


def compare(found: Answer, dataset: Path, shape: Shape, wanted: Counter[Sample] | None) -> None:
    if wanted is None:
        assert found.refusal is not None
        return
    assert found.refusal is None, found.refusal
    stored = stored_samples(dataset, shape)
    assert stored == wanted, f"missing {wanted - stored}, strange {stored - wanted}"


@share(14, suite=5)
@given(rows_of(), shapes(), st.booleans())
def test_a_log_in_any_legal_form_becomes_its_samples(rows, shape, of_users):
    with tempfile.TemporaryDirectory(prefix="attack-") as parent:
        path, dataset = write_log(rows, shape, Path(parent) / "log"), Path(parent) / "dataset"
        words = [path, "--output_path", dataset, *shape.words]
        of_users = of_users and not shape.labelled
        words += ["--layout", "users"] * of_users
        found = answer(preprocess, *words, names=(path, *SAID))
        try:
            _, wanted = first_day(rows, shape)
        except Refused:
            wanted = None
        if of_users and found.refusal is None:
            samples = Path(parent) / "samples"
            made = ["data", "transcode", "--input", str(dataset), "--output", str(samples)]
            cli.main(made, standalone_mode=False)
            assert stored_samples(dataset, shape, samples) == wanted
        else:
            compare(found, dataset, shape, wanted)


ODD_TIMES = ["", "x", "-", "1e400", "2024-13-01", "1.5.2", "\0", "é"]
ODD_LABELS = ["2", "-1", "yes", "", "0.5", "é", "x" * 70_000]


@share(25, suite=8)
@given(
    rows_of(),
    shapes(forms=("csv", "csv.gz")),
    *(st.booleans(), ANY_NUMBER, st.sampled_from(ODD_TIMES), st.sampled_from(ODD_LABELS)),
)
def test_a_bad_row_is_refused_with_its_line_or_left_out(rows, shape, skip, at, time, label):
    with tempfile.TemporaryDirectory(prefix="attack-") as parent:
        at %= len(rows)
        odd = {"label": label} if shape.labelled and at % 2 else {"time": time}
        written = [*rows[:at], rows[at]._replace(**odd), *rows[at + 1 :]]
        path, dataset = write_log(written, shape, Path(parent) / "log"), Path(parent) / "dataset"
        words = [path, "--output_path", dataset, *shape.words, *["--on_bad_rows", "skip"] * skip]
        found = answer(preprocess, *words, names=(path.name, *SAID))
        if not skip:
            assert found.refusal and f"line {at + 2}" in found.refusal, found
            return
        try:
            _, wanted = first_day([*rows[:at], *rows[at + 1 :]], shape)
        except Refused:
            wanted = None
        compare(found, dataset, shape, wanted)


@share(10, suite=4)
@given(rows_of(), shapes(), st.lists(CONTENT_DAMAGES, min_size=1, max_size=2), st.booleans())
def test_a_damaged_log_is_read_or_refused(rows, shape, damages, skip):
    with tempfile.TemporaryDirectory(prefix="attack-") as parent:
        path, dataset = write_log(rows, shape, Path(parent) / "log"), Path(parent) / "dataset"
        before = path.read_bytes()
        for damage in damages:
            if path.is_file():
                damage.make(path)
        words = [path, "--output_path", dataset, *shape.words, *["--on_bad_rows", "skip"] * skip]
        found = answer(preprocess, *words, names=(path.name, *SAID))
        if found.refusal is not None:
            assert not dataset.exists()
        elif shape.form == "csv.gz" and path.read_bytes() != before:  # which has a checksum
            gzip.decompress(path.read_bytes())


class Days(InFolder):
    """A dataset, and those of the days after it: of what was fitted, with histories or without."""

    def __init__(self) -> None:
        super().__init__()
        self.days: list[Path] = []
        self.day = 1

    @initialize(rows=rows_of(), shape=shapes(st.none()))
    def first(self, rows, shape):
        self.shape, self.earlier = shape, list(rows)
        path = write_log(rows, shape, self.parent / "log")
        dataset = self.parent / "1"
        words = [path, "--output_path", dataset, *shape.words]
        found = answer(preprocess, *words, names=(path, *SAID))
        try:
            self.learned, wanted = first_day(rows, shape)
        except Refused:
            compare(found, dataset, shape, None)
            return
        compare(found, dataset, shape, wanted)
        self.days.append(dataset)

    @rule(
        data=st.data(),
        continues=st.booleans(),
        grows=st.booleans(),
        test_from=st.none() | st.integers(1, 19),
    )
    def next_day(self, data, continues, grows, test_from):
        if not self.days:
            return
        # A dataset keeps so many newest rows; those of items that it does not know are among them.
        continues = continues and {row.item for row in self.earlier} <= self.learned.items
        start = 30 * self.day
        rows = data.draw(rows_of(start + 20, start, 2))
        self.day += 1
        path = write_log(rows, self.shape, self.parent / f"log{self.day}")
        old, dataset = self.days[-1], self.parent / str(self.day)
        words = [path, "--output_path", dataset, "--fitted", old, *["--grow"] * grows]
        words += ["--history", old] if continues else []
        shape = self.shape
        if test_from is None:
            words += ["--test_users", "0"]
        else:
            words += ["--test_from", shape.moment(start + test_from)]
            shape = shape._replace(split=(None, start + test_from))
        found = answer(preprocess, *words, names=(path, old, *SAID))
        earlier = self.earlier if continues else []
        try:
            learned, wanted = self.wanted(rows, earlier, shape, grows, continues)
        except Refused:
            compare(found, dataset, shape, None)
            return
        compare(found, dataset, shape, wanted)
        self.days.append(dataset)
        self.learned = learned
        self.earlier = [*earlier, *rows]

    def wanted(self, rows, earlier, shape, grows, continues):
        users = kept_users([*earlier, *rows], shape) & {row.user for row in rows}
        if not users:
            raise Refused("No user has")
        new = [row for row in rows if row.user in users]
        learned = self.learned
        if grows:
            learned = Learned(
                learned.users | {row.user for row in new},
                learned.items | {row.item for row in new},
            )
        if not any(row.item in learned.items for row in new):
            raise Refused("no items")
        found = samples_of(rows, shape, learned, earlier)
        need_samples(found, "train", "test")
        return learned, found


def test_the_days_after_go_on_as_the_rules_say():
    run_state_machine_as_test(Days, settings=share(6, suite=4, stateful_step_count=3))
