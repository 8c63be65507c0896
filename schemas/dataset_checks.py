"""What must agree within a dataset directory: spec, schema, metadata, and the files' columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .exceptions import SpecError
from .feature_spec import FeatureSpec
from .file_names import METADATA_FILE
from .metadata_file import cardinalities, read_cardinalities
from .problem import KeyPath, Problem

if TYPE_CHECKING:
    from .dataset import Dataset
    from .merlin_import import Schema


def check_metadata(directory: Path, spec: FeatureSpec) -> list[Problem]:
    """Hold metadata.json, if it is there, against the spec.

    Its entries follow the published order (user features, then item features); their names are
    free. Where they are the names of the spec's tables they may stand in another order.
    """
    file = directory / METADATA_FILE
    if not file.exists():
        return []
    stated, wanted = read_cardinalities(file), cardinalities(spec)
    if len(stated) != len(wanted):
        names = ", ".join(entry["name"] for entry in wanted)
        expected = f"{len(wanted)} entries ({names}), as in the spec"
        return [Problem(str(file), ("cardinalities",), expected, str(len(stated)))]
    by_name = dict(stated)
    if set(by_name) != {entry["name"] for entry in wanted}:
        by_name = {e["name"]: value for e, (_, value) in zip(wanted, stated, strict=True)}
    return [
        Problem(
            str(file),
            ("cardinalities", place),
            f"{entry['value']} for {entry['name']}, as in the spec",
            str(by_name[entry["name"]]),
        )
        for place, entry in enumerate(wanted)
        if by_name[entry["name"]] != entry["value"]
    ]


def check_agreement(
    file: Path, spec: FeatureSpec, derived: Schema, schema: Schema
) -> list[Problem]:
    """Hold a schema.pbtxt against the schema that the spec translates to.

    A schema without tags or domains contradicts nothing; one with others does. The order of the
    columns may differ: channels give the features' order.
    """
    from .natural_translation import facts

    wanted, found = facts(derived), facts(schema)
    missing, more = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    problems = []
    if missing or more:
        received = f"columns missing: {missing}, columns unknown: {more}"
        problems.append(Problem(str(file), (), "the spec's features", received))
    for name in wanted.keys() & found.keys():
        for fact, value in wanted[name].items():
            theirs = found[name][fact]
            if theirs is not None and theirs != value:
                expected = f"{fact} {value}, as in {spec.path}"
                problems.append(Problem(str(file), (name,), expected, str(theirs)))
    return sorted(problems, key=str)


def check_parquet_columns(dataset: Dataset) -> None:
    """Look into the parquet files' footers: every column there, lists where lists should be.

    Raises:
        SpecError: With every file and column that is not as the spec says.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    problems: list[Problem] = []
    for chunks in dataset.spec.source_spec.values():
        for chunk in chunks:
            for name in chunk.files if chunk.type == "parquet" else ():
                file = dataset.path / name
                try:
                    columns = pq.read_schema(file)
                except (pa.ArrowException, OSError) as error:
                    reason = " ".join(str(error).split())[:200]
                    problems.append(Problem(str(file), (), "a parquet file", reason))
                    continue
                problems += _column_problems(dataset, file, columns, chunk.features)
    if problems:
        raise SpecError(dataset.path, problems)


def _column_problems(
    dataset: Dataset, file: Path, columns: object, features: tuple[str, ...]
) -> list[Problem]:
    import pyarrow as pa

    assert isinstance(columns, pa.Schema)
    problems = []
    for name in features:
        path: KeyPath = (name,)
        count = columns.names.count(name)
        if count != 1:
            received = "none" if count == 0 else f"{count} of this name"
            problems.append(Problem(str(file), path, "one column", received))
            continue
        kind = columns.field(name).type
        is_list = any(
            test(kind)
            for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        )
        if is_list != bool(dataset.schema[name].is_list):
            expected = "one value a row" if is_list else "lists"
            problems.append(Problem(str(file), path, expected, str(kind)))
    return problems
