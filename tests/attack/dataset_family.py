"""The attack on a dataset directory: what the feed reads is what arrow reads, or is refused."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .arrow_truth import Truth, read_truth
from .attempt import Attempt, attempt
from .byte_mutations import BYTES
from .comparison import difference
from .descriptions import Descriptions, NoFacts, read_descriptions
from .document_mutations import DOCUMENT_KINDS
from .draft import DOCUMENTS, FILES, Draft, base_of, make_draft
from .kinds import MutationKind, pick_kind
from .outcome import NO_TRUTH, READ, REFUSED, Outcome
from .plan import Plan
from .value_mutations import VALUES
from .writer_mutations import WRITERS

PHASES = (VALUES, WRITERS, DOCUMENT_KINDS, BYTES)
KINDS = {kind.name: (phase, kind) for phase, kinds in enumerate(PHASES) for kind in kinds}
MIXES: dict[str, list[list[MutationKind]]] = {
    "parquet": [VALUES, WRITERS, BYTES],
    "spec": [DOCUMENT_KINDS],
}
"""Family -> the kinds of which its cases are made."""
MAPPINGS = ("train", "test")


class DatasetFamily:
    """Cases on a dataset directory."""

    def __init__(self, name: str) -> None:
        """Choose the kinds of changes."""
        self.name = name
        self._mix = MIXES[name]

    def prepare(self) -> None:
        """Import what is slow to import before any worker is forked."""
        from . import feed_reading  # noqa: F401

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a good dataset and one to three changes, seldom one of another family too."""
        count = int(random.choice([1, 2, 3], p=[0.5, 0.3, 0.2]))
        mutations = []
        for _ in range(count):
            mix = self._mix if random.random() < 0.9 else list(PHASES)
            kinds = mix[int(random.integers(len(mix)))]
            mutations.append(pick_kind(random, kinds).drawn(random))
        return Plan(base_of(random), tuple(mutations))

    def write(self, plan: Plan, directory: Path) -> None:
        """Write the dataset of a plan."""
        draft = make_draft(plan.base)
        ordered = sorted(plan.mutations, key=lambda mutation: KINDS[mutation.name][0])
        early = [m for m in ordered if KINDS[m.name][1] not in BYTES]
        for mutation in early:
            KINDS[mutation.name][1].change(draft, **mutation.arguments)
        _write(draft, directory)
        for mutation in ordered[len(early) :]:
            KINDS[mutation.name][1].change(directory, **mutation.arguments)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Make the case and say how it ends."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory = Path(parent) / "d"
            directory.mkdir()
            try:
                self.write(plan, directory)
            except pa.ArrowException as error:
                return Outcome(NO_TRUTH, f"arrow writes no such file: {error}")
            phase("feed")
            tried = attempt(lambda: read_dataset(directory))
            phase("truth")
            outcome = judged(directory, plan, tried)
            if outcome.kind == READ and any(KINDS[m.name][0] == 2 for m in plan.mutations):
                phase("probe")
                outcome = _probed(directory, outcome)
            return outcome


def _write(draft: Draft, directory: Path) -> None:
    draft.write(directory)


def read_dataset(directory: Path) -> dict[str, dict[str, np.ndarray]]:
    """Read both mappings, in stored order, as the product does."""
    from merlin_sim.foundation.ranks import Ranks

    from .feed_reading import joined, open_whole, poisoned_memory, read_batches, with_label

    with poisoned_memory():
        dataset = open_whole(directory)
        label = dataset.channels["label"][0]
        return {
            mapping: with_label(joined(read_batches(dataset, mapping, 32, Ranks())), label)
            for mapping in MAPPINGS
        }


def judged(directory: Path, plan: Plan, tried: Attempt) -> Outcome:
    """Compare what came of reading with arrow and the descriptions."""
    if tried.fault is not None:
        return Outcome("traceback", tried.fault)
    truths: dict[str, Truth] = {}
    facts = None
    try:
        facts = read_descriptions(directory)
        truths = {mapping: read_truth(directory, mapping, facts) for mapping in MAPPINGS}
    except (NoFacts, KeyError, TypeError) as error:
        if tried.refusal is None:
            return Outcome("accepted what cannot be understood", str(error))
    if tried.refusal is not None:
        return _judged_refusal(directory, plan, tried.refusal, truths, facts)
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
    plan: Plan,
    refusal: str,
    truths: dict[str, Truth],
    facts: Descriptions | None,
) -> Outcome:
    if not names_a_file(refusal, directory):
        return Outcome("refused without a file", refusal[:400])
    harmless = [KINDS[m.name][1] in WRITERS for m in plan.mutations]
    if all(harmless) and facts and truths and not any(_faults(t) for t in truths.values()):
        return Outcome("refused a good file", refusal[:400])
    rows = [row for truth in truths.values() for row in truth.wrong_rows]
    files = [name for truth in truths.values() for name, _ in truth.wrong_files]
    damaged = any(KINDS[m.name][1] in BYTES or KINDS[m.name][0] == 2 for m in plan.mutations)
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
    if not any(row in said and name in refusal for name, row, _ in rows):
        return Outcome("refused with another row", f"{refusal[:300]} where {rows[:3]}")
    return Outcome(REFUSED, refusal)


def names_a_file(refusal: str, directory: Path) -> bool:
    """Whether a message says which file or directory it is about."""
    names = [*DOCUMENTS, *FILES]
    return any(str(directory / name) in refusal for name in names) or str(directory) in refusal


def _probed(directory: Path, outcome: Outcome) -> Outcome:
    """Put an id beyond its table into each column in turn: is it still found?"""
    facts = read_descriptions(directory)
    for column, feature in facts.features.items():
        if feature.largest is None:
            continue
        name = facts.files["train"][0]
        path = directory / name
        kept = path.read_bytes()
        try:
            _put_beyond(path, column, feature.largest)
        except (ValueError, OSError, KeyError):
            continue
        tried = attempt(lambda: read_dataset(directory))
        path.write_bytes(kept)
        if tried.refusal is None:
            said = tried.fault or f"{column}: {feature.largest + 1} is fed"
            return Outcome("the check of ids is off", said)
    return outcome


def _put_beyond(path: Path, column: str, largest: Any) -> None:
    """Write a table whose first value of a column is beyond; ValueError where it has no value."""
    table = pq.read_table(path)
    place = table.column_names.index(column)
    cells = table.column(place).to_pylist()
    row = next((i for i, cell in enumerate(cells) if cell not in (None, [])), None)
    if row is None:
        raise ValueError("no value")
    beyond = largest + 1
    cells[row] = [*cells[row][:-1], beyond] if isinstance(cells[row], list) else beyond
    table = table.set_column(place, column, pa.array(cells, table.column(place).type))
    pq.write_table(table, path)
