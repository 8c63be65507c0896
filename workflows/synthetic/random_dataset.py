"""A dataset of random ids and numbers, of whatever size: to measure with, not to learn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...foundation.exceptions import MerlinSimError, SpecError
from ...foundation.progress import Reporter, Silence
from ...schemas.channels import LABEL, contract_of
from ...schemas.dataset import write_documents
from ...schemas.feature_spec import Chunk, FeatureSpec
from ...schemas.merlin_schema import to_merlin_schema
from ..parquet_files import PartWriter, columns_with_few_ids
from ..transcoding.chunk_files import arrow_type
from .raw_files import draw_ranks

ROWS_AT_ONCE = 65_536
CLICKED = 0.25


def synthesize_dataset(
    directory: Path,
    spec: FeatureSpec,
    rows: Mapping[str, int],
    seed: int,
    reporter: Reporter | None = None,
) -> FeatureSpec:
    """Write a dataset into an existing directory: ids by a power law, normal numbers, clicks.

    The features of the spec have one value a row; its files are not read. Returns the spec of the
    files that were written.
    """
    _check(spec, rows)
    reporter = reporter or Silence()
    names = tuple(spec.feature_spec)
    few = columns_with_few_ids(to_merlin_schema(spec))
    schema = pa.schema([(name, arrow_type(name, spec.feature_spec[name])) for name in names])
    sources = {}
    for number, (mapping, count) in enumerate(rows.items()):
        writer = PartWriter(directory, mapping, few)
        with reporter.phase(f"writing {mapping}", count) as report:
            for first in range(0, count, ROWS_AT_ONCE):
                random = np.random.default_rng([seed, number, first])
                part = min(ROWS_AT_ONCE, count - first)
                columns = [_draw(spec, name, random, part) for name in names]
                writer.write(pa.table([pa.array(column) for column in columns], schema))
                report(part, part)
        writer.close(schema)
        sources[mapping] = (Chunk("parquet", names, tuple(writer.files)),)
    written = replace(spec, source_spec=sources, path=None, line_of=None)
    write_documents(directory, written)
    return written


def _check(spec: FeatureSpec, rows: Mapping[str, int]) -> None:
    wrong = [f"{mapping} {count}" for mapping, count in rows.items() if count < 1]
    if wrong:
        raise MerlinSimError(f"Rows should be positive integers. Received: {', '.join(wrong)}.")
    problems = []
    for name, feature in spec.feature_spec.items():
        if feature.dimensions is not None:
            where = ("feature_spec", name, "dimensions")
            received = str(list(feature.dimensions))
            problems.append(spec.problem(where, "none: lists are not drawn", received))
        if feature.cardinality == "auto":
            where = ("feature_spec", name, "cardinality")
            problems.append(spec.problem(where, "a number: there is nothing to count", "auto"))
    if problems:
        raise SpecError(spec.path or "the feature spec", problems)


def _draw(spec: FeatureSpec, name: str, random: np.random.Generator, rows: int) -> Any:
    feature = spec.feature_spec[name]
    kind = arrow_type(name, feature).to_pandas_dtype()
    if name in spec.channel_spec.get(LABEL, ()):
        return (random.random(rows) < CLICKED).astype(kind)
    if isinstance(feature.cardinality, int):
        ranks = draw_ranks(feature.cardinality, random, rows)
        return (ranks - 1 + contract_of(spec.channel_spec).first_id).astype(kind)
    return random.standard_normal(rows).astype(kind)
