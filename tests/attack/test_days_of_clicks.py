"""Days of click logs become the rows that their lines say, or the line that is none is named."""

import gzip
import re
import tempfile
import zlib
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from preprocess_runs import all_bytes

from merlin_sim.workflows.criteo.build_criteo import CriteoBuilder
from merlin_sim.workflows.criteo.click_graph import CriteoRules
from merlin_sim.workflows.criteo.criteo_columns import KEY_COLUMNS
from merlin_sim.workflows.criteo.criteo_log import find_days

from .damage import ANY_NUMBER, BYTE_CHANGES, THINGS
from .judged import answer, share

NUMBERS, KEYS, THRESHOLD = 13, 26, 2
FIELDS = 1 + NUMBERS + KEYS
NUMBER_FIELDS = st.sampled_from(["", "", "0", "-1", "-2", "7", "01", "9" * 18, "-0", "0" * 18])
KEY_FIELDS = st.sampled_from(["", "68fd1e64", "68FD1E64", "ffffffff", "0", "1f", "0" * 12 + "f"])
ODD_FIELDS = st.sampled_from(
    [
        *("-", "\n", "-3", "2", "+1", " 1", "1.5", "NaN", "1e3", "é", "\0", "a\rb", "9" * 19, "g"),
        *("100000000", "00000000ffffffff", "0x1f", "x" * 70_000, "--1", "٣", "-9" * 9),
    ]
)


@st.composite
def days(draw: st.DrawFn) -> list[bytes]:
    random = draw(st.randoms(use_true_random=False))
    end = draw(st.sampled_from([b"\n", b"\n", b"\r\n"]))
    few = draw(st.lists(st.tuples(NUMBER_FIELDS, KEY_FIELDS), min_size=1, max_size=4))
    texts = []
    for _ in range(3):
        lines = []
        for _ in range(draw(st.integers(1, 12))):
            numbers = [random.choice(few)[0] for _ in range(NUMBERS)]
            keys = [random.choice(few)[1] for _ in range(KEYS)]
            lines.append("\t".join([str(random.randint(0, 1)), *numbers, *keys]).encode())
        texts.append(end.join(lines) + (end if random.random() < 0.8 else b""))
    return texts


def preprocess(days: Path, output: Path, skip: bool) -> None:
    rules = CriteoRules((THRESHOLD,) * len(KEY_COLUMNS), "all")
    policy = "skip" if skip else "fail"
    CriteoBuilder(find_days(days), rules, on_bad_rows=policy).build(output)


def read_day(path: Path) -> tuple[list[bytes], list[int]]:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    rows, wrong = [], []
    for number, line in enumerate(text.split(b"\n"), start=1):
        line = line.removesuffix(b"\r")
        if line:
            row = plain_line(line.split(b"\t"))
            wrong += [number] * (row is None)
            rows += [row] * (row is not None)
    return rows, wrong


def plain_line(fields: list[bytes]) -> bytes | None:
    if len(fields) != FIELDS or fields[0] not in (b"0", b"1"):
        return None
    numbers, keys = fields[1 : 1 + NUMBERS], fields[1 + NUMBERS :]
    if not all(re.fullmatch(rb"(-0*[0-2]|[0-9]{1,18})?", each) for each in numbers):
        return None
    if not all(re.fullmatch(rb"0*[0-9a-fA-F]{0,8}", each) for each in keys):
        return None
    plain = [b"%d" % int(each) if each else b"" for each in numbers]
    plain += [b"%08x" % int(each, 16) if each else b"" for each in keys]
    return b"\t".join([fields[0], *plain])


class FieldChange(NamedTuple):
    """Another text in a field."""

    line: int
    field: int
    value: str

    def make(self, path: Path) -> None:
        lines = path.read_bytes().split(b"\n")
        fields = lines[self.line % len(lines)].split(b"\t")
        fields[self.field % len(fields)] = self.value.encode()
        lines[self.line % len(lines)] = b"\t".join(fields)
        path.write_bytes(b"\n".join(lines))


FIELD_CHANGES = st.builds(
    FieldChange, ANY_NUMBER, ANY_NUMBER, ODD_FIELDS | NUMBER_FIELDS | KEY_FIELDS
)
CHANGES = st.one_of(FIELD_CHANGES, FIELD_CHANGES, BYTE_CHANGES, THINGS)


@pytest.mark.slow
@share(8, suite=4)
@given(days(), st.booleans(), st.booleans(), st.lists(st.tuples(ANY_NUMBER, CHANGES), max_size=2))
def test_days_become_what_their_lines_say(texts, packed, skip, damages):
    with tempfile.TemporaryDirectory(prefix="attack-") as parent:
        source, dataset = Path(parent) / "days", Path(parent) / "dataset"
        source.mkdir()
        paths = [source / f"day_{number}{'.gz' * packed}" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(gzip.compress(text) if packed else text)
        for number, damage in damages:
            if paths[number % len(paths)].is_file():
                damage.make(paths[number % len(paths)])
        found = answer(preprocess, source, dataset, skip, names=("day_", source))
        if any(path.is_symlink() and not path.exists() for path in paths):
            assert found.refusal is not None and "found a link to" in found.refusal
            return
        try:
            read = [read_day(path) for path in paths if path.is_file()]
        except (OSError, EOFError, zlib.error):
            assert found.refusal is not None, "what cannot be unpacked was accepted"
            return
        bad = [(number, line) for number, (_, wrong) in enumerate(read) for line in wrong]
        if bad and not skip:
            assert found.refusal is not None, f"wrong lines were accepted: {bad[:3]}"
            said = {int(line) for line in re.findall(r"(?:row|line) (\d+)", found.refusal)}
            assert any(f"day_{n}" in found.refusal and line in said for n, line in bad), found
        elif found.refusal is not None:
            days_with_rows = [bool(rows) for rows, _ in read]
            assert not (days_with_rows[-1] and any(days_with_rows[:-1])), found.refusal
        else:
            again, plain = Path(parent) / "again", Path(parent) / "plain"
            again.mkdir()
            for number, (rows, _) in enumerate(read):
                (again / f"day_{number}").write_bytes(b"".join(row + b"\n" for row in rows))
            preprocess(again, plain, skip=False)
            assert all_bytes(dataset) == all_bytes(plain)
