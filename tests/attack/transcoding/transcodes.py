"""The attack on `transcode`: samples of users' rows, and the published tfrecord, there and back.

What is written is what arrow reads of the source and plain Python makes of it; a fault of the
source is refused before anything is written.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from ..attempt import Attempt, attempt
from ..datasets.arrow_truth import Truth, read_truth
from ..datasets.comparison import as_array
from ..datasets.dataset_family import DatasetFamily
from ..datasets.descriptions import Descriptions, NoFacts, read_descriptions
from ..datasets.made_users_form import FORM as MADE_USERS
from ..datasets.users_truth import read_samples
from ..kinds import MutationKind, pick_kind
from ..mutations.byte_mutations import byte_kinds
from ..mutations.value_mutations import value_kinds
from ..mutations.writer_mutations import writer_kinds
from ..outcome import NO_TRUTH, READ, REFUSED, Outcome
from ..plan import Plan
from .tfrecords import decoded, unframed

SPEC = "feature_spec.yaml"
MAPPINGS = ("train", "test")
USERS = "made users"
SOURCES = ("parquet", "clicks", USERS)


class TranscodeFamily:
    """Cases on datasets that are written in another form."""

    name = "transcode"

    def __init__(self) -> None:
        """Gather the kinds of changes: of tables, of how they are written, of bytes."""
        self._datasets = {name: DatasetFamily(name) for name in SOURCES if name != USERS}
        self._forms = {name: family.form for name, family in self._datasets.items()}
        self._forms[USERS] = MADE_USERS
        self._kinds: dict[str, list[list[MutationKind]]] = {
            name: [value_kinds(form), writer_kinds(form), byte_kinds(form)]
            for name, form in self._forms.items()
        }

    def prepare(self) -> None:
        """Import before any worker is forked, and make the good dataset of users."""
        import merlin_sim.workflows.transcoding.tfrecord
        import merlin_sim.workflows.transcoding.transcode
        import merlin_sim.workflows.transcoding.users  # noqa: F401

        from ..serving.good_servable import good_servable

        good_servable()

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a good dataset, the form of records, and up to two changes."""
        source = SOURCES[int(random.choice(3, p=[0.4, 0.25, 0.35]))]
        count = int(random.choice([0, 1, 2], p=[0.1, 0.6, 0.3]))
        base = {
            **self._forms[source].base_of(random),
            "source": source,
            "prebatch": [int(random.choice([0, 0, 1, 2, 7, 50])) for _ in MAPPINGS],
            "parts": [int(random.integers(1, 5)) for _ in MAPPINGS],
        }
        kinds = self._kinds[source]
        chosen = [kinds[int(random.choice(3, p=[0.6, 0.15, 0.25]))] for _ in range(count)]
        return Plan(base, tuple(pick_kind(random, each).drawn(random) for each in chosen))

    def write(self, plan: Plan, directory: Path) -> None:
        """Write the source of a plan."""
        stages = {
            kind.name: (stage, kind)
            for stage, kinds in enumerate(self._kinds[plan.base["source"]])
            for kind in kinds
        }
        draft = self._forms[plan.base["source"]].make(plan.base)
        ordered = sorted(plan.mutations, key=lambda each: stages[each.name][0])
        for mutation in ordered:
            stage, kind = stages[mutation.name]
            if stage < 2:
                kind.change(draft, **mutation.arguments)
        draft.write(directory)
        for mutation in ordered:
            stage, kind = stages[mutation.name]
            if stage == 2:
                kind.change(directory, **mutation.arguments)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Write, transcode, compare; records there and back."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory, out, back = (Path(parent) / name for name in ("d", "out", "back"))
            directory.mkdir()
            try:
                self.write(plan, directory)
            except (pa.ArrowException, OSError) as error:
                return Outcome(NO_TRUTH, f"arrow writes no such file: {error}")
            of_users = plan.base["source"] == USERS
            phase("transcode")
            run = transcode_users if of_users else transcode_to_records
            tried = attempt(lambda: run(directory, out, plan.base))
            phase("truth")
            truths, facts = _truths(directory, of_users)
            damaged = any(m.name in {k.name for k in self._kinds[plan.base["source"]][2]}
                          for m in plan.mutations)  # fmt: skip
            outcome = _judged(directory, plan, tried, truths, damaged)
            if outcome.kind != READ or facts is None:
                return outcome
            if of_users:
                return _compared_samples(out, truths)
            fault = _difference(_records(out), truths, facts)
            if fault:
                return Outcome("wrong records", fault)
            phase("back")
            tried = attempt(lambda: transcode(out, back))
            if tried.refusal is not None or tried.fault is not None:
                return Outcome("no way back", str(tried.refusal or tried.fault)[:300])
            fault = _difference(_stored(back), truths, facts)
            return Outcome("other rows back", fault) if fault else outcome


def transcode_users(source: Path, output: Path, base: dict[str, Any]) -> None:
    """Do what the command does with a dataset of users."""
    from merlin_sim.schemas.dataset import DatasetDirectory
    from merlin_sim.workflows.transcoding.users import UsersTranscoder

    UsersTranscoder(DatasetDirectory.open(source)).transcode(output)


def transcode_to_records(source: Path, output: Path, base: dict[str, Any]) -> None:
    """Do what the command does with `--to tfrecord`."""
    from merlin_sim.foundation.progress import Silence
    from merlin_sim.schemas.specs.spec_file import read_spec
    from merlin_sim.workflows.transcoding.transcode import TfrecordForm, Transcoder

    parts, sizes = (dict(zip(MAPPINGS, base[key], strict=True)) for key in ("parts", "prebatch"))
    form = TfrecordForm(parts, sizes)
    Transcoder(read_spec(source / SPEC), source, Silence(), "tfrecord", form).transcode(output)


def transcode(source: Path, output: Path) -> None:
    """Bring a dataset to parquet."""
    from merlin_sim.foundation.progress import Silence
    from merlin_sim.schemas.specs.spec_file import read_spec
    from merlin_sim.workflows.transcoding.transcode import Transcoder

    Transcoder(read_spec(source / SPEC), source, Silence()).transcode(output)


def _truths(directory: Path, of_users: bool) -> tuple[dict[str, Truth], Descriptions | None]:
    try:
        facts = read_descriptions(directory)
        read = read_samples if of_users else read_truth
        return {mapping: read(directory, mapping, facts) for mapping in MAPPINGS}, facts
    except (NoFacts, LookupError, TypeError, ValueError) as error:
        broken = Truth(wrong_files=[("", f"{type(error).__name__}: {error!s:.200}")])
        return dict.fromkeys(MAPPINGS, broken), None


def _judged(
    directory: Path, plan: Plan, tried: Attempt, truths: dict[str, Truth], damaged: bool
) -> Outcome:
    if tried.fault is not None:
        return Outcome("traceback", tried.fault)
    faults = [truth.must_refuse for truth in truths.values() if truth.must_refuse]
    faults = [fault for fault in faults if fault not in (": no rows", ": no samples")]
    if tried.refusal is None:
        return Outcome("accepted wrong data", faults[0]) if faults else Outcome(READ)
    if str(directory) not in tried.refusal:
        return Outcome("refused without a file", tried.refusal[:400])
    doubts = any(truth.doubts for truth in truths.values())
    if not plan.mutations:
        return Outcome("refused a good file", tried.refusal[:400])
    rows = [row for truth in truths.values() for row in truth.wrong_rows]
    files = any(truth.wrong_files for truth in truths.values())
    if rows and not files and not doubts and not damaged:
        said = {int(number) for number in re.findall(r"rows? (\d+)", tried.refusal)}
        ranges = re.findall(r"rows (\d+) to (\d+)", tried.refusal)
        said |= {row for a, b in ranges for row in range(int(a), int(b) + 1)}
        if not any(row + 1 in said and name in tried.refusal for name, row, _ in rows):
            return Outcome("refused without the row", f"{tried.refusal[:300]} where {rows[:3]}")
    return Outcome(REFUSED, tried.refusal[:400])


Columns = dict[str, list[Any]]


def _compared_samples(out: Path, truths: dict[str, Truth]) -> Outcome:
    """Rows come in another order: that of `preprocess`."""
    for mapping, truth in truths.items():
        files = sorted((out / mapping).glob("*.parquet"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        found = Counter(tuple(_plain(row[name]) for name in truth.columns) for row in rows)
        cells = [map(_plain, column) for column in truth.columns.values()]
        wanted = Counter(zip(*cells, strict=True))
        if found != wanted:
            missing, strange = list((wanted - found).items()), list((found - wanted).items())
            return Outcome("wrong samples", f"{mapping}: missing {missing[:1]}, {strange[:1]}")
    return Outcome(READ)


def _plain(cell: Any) -> Any:
    return tuple(cell) if isinstance(cell, list) else cell


def _records(directory: Path) -> dict[str, Columns]:
    """The samples of a dataset in tfrecord, record by record, each of one sample or of many."""
    spec = yaml.safe_load((directory / SPEC).read_bytes())
    found: dict[str, Columns] = {}
    for mapping, (chunk,) in spec["source_spec"].items():
        columns = found[mapping] = {name: [] for name in chunk["features"]}
        for file in chunk["files"]:
            for record in map(decoded, unframed((directory / file).read_bytes())):
                for name in chunk["features"]:
                    values = record[name][1]
                    length = (spec["feature_spec"][name].get("dimensions") or [None])[0]
                    if length is not None:
                        values = [values[at : at + length] for at in range(0, len(values), length)]
                    columns[name] += values
    return found


def _stored(directory: Path) -> dict[str, Columns]:
    spec = yaml.safe_load((directory / SPEC).read_bytes())
    found: dict[str, Columns] = {}
    for mapping, (chunk,) in spec["source_spec"].items():
        tables = [pq.read_table(directory / file) for file in chunk["files"]]
        whole = pa.concat_tables(tables)
        found[mapping] = {name: whole[name].to_pylist() for name in chunk["features"]}
    return found


def _difference(found: dict[str, Columns], truths: dict[str, Truth], facts: Descriptions) -> str:
    """Say in what samples differ from the truth; empty where in nothing."""
    for mapping, truth in truths.items():
        for name, cells in truth.columns.items():
            wanted = as_array(cells, facts.features[name].length).tolist()
            got = found[mapping].get(name)
            if got is None or len(got) != len(wanted):
                return f"{mapping}: {name}: {got and len(got)} rows, by arrow {len(wanted)}"
            for row, (one, other) in enumerate(zip(got, wanted, strict=True)):
                if not _same(one, other, facts.features[name].channel == "numerical"):
                    return f"{mapping}: {name}, row {row}: {one}, by arrow {other}"
    return ""


def _same(found: Any, wanted: Any, is_number: bool) -> bool:
    if is_number:
        both = (float(np.float32(found)), float(np.float32(wanted)))
        return both[0] == both[1] or all(map(math.isnan, both))
    return bool(found == wanted)
