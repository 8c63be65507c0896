"""The attack on a dataset directory: what the feed reads is what arrow reads, or is refused."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..attempt import Attempt, attempt
from ..kinds import pick_kind
from ..mutations.byte_mutations import byte_kinds
from ..mutations.document_mutations import document_kinds
from ..mutations.value_mutations import value_kinds
from ..mutations.writer_mutations import writer_kinds
from ..outcome import NO_TRUTH, READ, REFUSED, Outcome
from ..plan import Mutation, Plan
from .arrow_truth import Truth, read_truth
from .clicks_form import FORM as CLICKS
from .comparison import difference
from .descriptions import Descriptions, NoFacts, read_descriptions
from .draft import SAMPLES
from .featured_form import FORM as FEATURED
from .users_form import FORM as USERS
from .users_form import layout_kinds
from .users_truth import read_samples

TABLES, WRITERS, DOCUMENTS, BYTES = range(4)
"""In which order changes are made, and of which kind they are."""
FAMILIES = {
    "parquet": (SAMPLES, (TABLES, WRITERS, BYTES)),
    "spec": (SAMPLES, (DOCUMENTS,)),
    "users": (USERS, (TABLES, TABLES, WRITERS, BYTES, DOCUMENTS)),
    "clicks": (CLICKS, (TABLES, TABLES, WRITERS, BYTES, DOCUMENTS)),
    "featured": (FEATURED, (TABLES, TABLES, WRITERS, BYTES, DOCUMENTS)),
}
"""Family -> its datasets, and the kinds of which its cases are made."""
MAPPINGS = ("train", "test")


class DatasetFamily:
    """Cases on a dataset directory."""

    def __init__(self, name: str) -> None:
        """Choose the form of the datasets, and the kinds of changes."""
        self.name = name
        self.form, self._mix = FAMILIES[name]
        of_users = layout_kinds() if self.form is USERS else []
        self._kinds = [
            value_kinds(self.form),
            writer_kinds(self.form),
            [*document_kinds(self.form), *of_users],
            byte_kinds(self.form),
        ]
        self._by_name = {
            kind.name: (number, kind) for number, kinds in enumerate(self._kinds) for kind in kinds
        }

    def prepare(self) -> None:
        """Import what is slow to import before any worker is forked."""
        from . import feed_reading  # noqa: F401

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a good dataset and one to three changes, seldom one of another family too."""
        count = int(random.choice([1, 2, 3], p=[0.5, 0.3, 0.2]))
        mutations = []
        for _ in range(count):
            mix = self._mix if random.random() < 0.9 else range(len(self._kinds))
            kinds = self._kinds[mix[int(random.integers(len(mix)))]]
            mutations.append(pick_kind(random, kinds).drawn(random))
        return Plan(self.form.base_of(random), tuple(mutations))

    def stage(self, mutation: Mutation) -> int:
        """Of which of the four kinds a change is."""
        return self._by_name[mutation.name][0]

    def write(self, plan: Plan, directory: Path) -> None:
        """Write the dataset of a plan."""
        draft = self.form.make(plan.base)
        ordered = sorted(plan.mutations, key=self.stage)
        early = [mutation for mutation in ordered if self.stage(mutation) != BYTES]
        for mutation in early:
            self._by_name[mutation.name][1].change(draft, **mutation.arguments)
        draft.write(directory)
        for mutation in ordered[len(early) :]:
            self._by_name[mutation.name][1].change(directory, **mutation.arguments)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Make the case and say how it ends."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory = Path(parent) / "d"
            directory.mkdir()
            try:
                self.write(plan, directory)
            except (pa.ArrowException, OSError) as error:
                return Outcome(NO_TRUTH, f"arrow writes no such file: {error}")
            phase("feed")
            tried = attempt(lambda: read_dataset(directory, self.form.model))
            phase("truth")
            stages = [self.stage(mutation) for mutation in plan.mutations]
            outcome = judged(directory, stages, tried)
            if outcome.kind == READ and DOCUMENTS in stages:
                phase("probe")
                outcome = _probed(directory, self.form.model, outcome)
            return outcome


def read_dataset(directory: Path, model: str) -> dict[str, dict[str, np.ndarray]]:
    """Read both mappings, in stored order, as the product does."""
    from merlin_sim.foundation.ranks import Ranks

    from .feed_reading import joined, open_whole, poisoned_memory, read_batches, with_label

    with poisoned_memory():
        dataset = open_whole(directory, model)
        label = dataset.channels["label"][0]
        return {
            mapping: with_label(joined(read_batches(dataset, mapping, 32, Ranks())), label)
            for mapping in MAPPINGS
        }


def judged(directory: Path, stages: list[int], tried: Attempt) -> Outcome:
    """Compare what came of reading with arrow and the descriptions."""
    if tried.fault is not None:
        return Outcome("traceback", tried.fault)
    truths: dict[str, Truth] = {}
    facts = None
    try:
        facts = read_descriptions(directory)
        read = read_truth if facts.layout is None else read_samples
        truths = {mapping: read(directory, mapping, facts) for mapping in MAPPINGS}
    except (NoFacts, LookupError, TypeError, ValueError) as error:
        if tried.refusal is None:
            return Outcome("accepted what cannot be understood", str(error))
    if tried.refusal is not None:
        return _judged_refusal(directory, stages, tried.refusal, truths, facts)
    assert facts is not None
    return _judged_reading(tried, truths, facts)


def _judged_reading(tried: Attempt, truths: dict[str, Truth], facts: Descriptions) -> Outcome:
    for mapping, truth in truths.items():
        if truth.must_refuse:
            return Outcome("accepted wrong data", truth.must_refuse)
        found = difference(tried.result[mapping], truth.columns, facts)
        if found:
            return Outcome("wrong values", f"{mapping}: {found}")
    if facts.contradictions and not tried.said:
        return Outcome("accepted a contradiction", "; ".join(facts.contradictions)[:300])
    return Outcome(READ)


def _judged_refusal(
    directory: Path,
    stages: list[int],
    refusal: str,
    truths: dict[str, Truth],
    facts: Descriptions | None,
) -> Outcome:
    if str(directory) not in refusal:
        return Outcome("refused without a file", refusal[:400])
    harmless = set(stages) <= {WRITERS}
    if harmless and facts and truths and not any(_faults(t) for t in truths.values()):
        return Outcome("refused a good file", refusal[:400])
    rows = [row for truth in truths.values() for row in truth.wrong_rows]
    files = [name for truth in truths.values() for name, _ in truth.wrong_files]
    damaged = BYTES in stages or DOCUMENTS in stages
    doubts = any(truth.doubts for truth in truths.values())
    if rows and not files and not damaged and not doubts:
        return _judged_rows(refusal, rows)
    return Outcome(REFUSED, refusal)


def _faults(truth: Truth) -> bool:
    return bool(truth.must_refuse or truth.doubts)


def _judged_rows(refusal: str, rows: list[tuple[str, int, str]]) -> Outcome:
    """A refusal because of rows names one of them."""
    said = [int(number) for number in re.findall(r"rows? (\d+)", refusal)]
    if not said:
        return Outcome("refused without the row", refusal[:400])
    if not any(row + 1 in said and name in refusal for name, row, _ in rows):
        return Outcome("refused with another row", f"{refusal[:300]} where {rows[:3]}")
    return Outcome(REFUSED, refusal)


def _probed(directory: Path, model: str, outcome: Outcome) -> Outcome:
    """Put an id beyond its table into each column in turn: is it still found?"""
    facts = read_descriptions(directory)
    for name, column, largest, row in _probes(directory, facts):
        path = directory / name
        kept = path.read_bytes()
        try:
            _put_beyond(path, column, largest, row)
        except (ValueError, OSError, KeyError):
            continue
        tried = attempt(lambda: read_dataset(directory, model))
        path.write_bytes(kept)
        if tried.refusal is None:
            said = tried.fault or f"{column}: {largest + 1} is fed"
            return Outcome("the check of ids is off", said)
    return outcome


def _probes(directory: Path, facts: Descriptions) -> Iterator[tuple[str, str, int, int | None]]:
    """File, column and largest id of all ids that stand in files, and in which row to put another.

    Of users it is one with samples: nobody looks at a row group without any.
    """
    file, layout = facts.files["train"][0], facts.layout
    if layout is None:
        for name, feature in facts.features.items():
            if feature.largest is not None:
                yield file, name, feature.largest, None
        return
    for file, row in _users_with_samples(directory, facts):
        for place, name in enumerate(facts.channels["user_features"]):
            yield file, name, facts.largest_of("user_features", place), row
        yield file, layout.history, facts.largest_of("target_item_features", 0), row
        break
    for place, name in enumerate(layout.item_features, start=1):
        yield layout.item_table, name, facts.largest_of("target_item_features", place), None


def _users_with_samples(directory: Path, facts: Descriptions) -> Iterator[tuple[str, int]]:
    assert facts.layout is not None
    begin, end = facts.layout.positions["train"]
    for file in facts.files["train"]:
        table = pq.read_table(directory / file, columns=[begin, end]).to_pydict()
        for row, span in enumerate(zip(table[begin], table[end], strict=True)):
            if span[0] < span[1]:
                yield file, row


def _put_beyond(path: Path, column: str, largest: Any, row: int | None) -> None:
    """Write a table with a value beyond in a row, or in the first that has any.

    Raises:
        ValueError: Where there is no value.
    """
    table = pq.read_table(path)
    place = table.column_names.index(column)
    cells = table.column(place).to_pylist()
    if row is None:
        row = next((i for i, cell in enumerate(cells) if cell not in (None, [])), None)
    if row is None or cells[row] in (None, []):
        raise ValueError("no value")
    beyond = largest + 1
    cells[row] = [*cells[row][:-1], beyond] if isinstance(cells[row], list) else beyond
    table = table.set_column(place, column, pa.array(cells, table.column(place).type))
    pq.write_table(table, path)
