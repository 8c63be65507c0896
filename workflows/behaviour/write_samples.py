"""Histories become files with one row per sample, beside the documents that describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...foundation.progress import Narrator
from ...schemas.dataset import write_documents
from ...schemas.translation.merlin_schema import to_merlin_schema
from ..engine.schedulers import Scheduler
from ..features.fitted_numbers import FittedNumbers
from ..features.item_values import ItemValues
from ..vocabularies.vocabulary import Vocabularies
from .dataset_spec import dataset_spec
from .encode_and_sample import Part, count_parts, sample_all
from .histories import Histories
from .rules import SampleRules


def write_samples_files(
    directory: Path,
    histories: Histories,
    rules: SampleRules,
    vocabularies: Vocabularies,
    sizes: Mapping[str, int],
    scheduler: Scheduler,
    narrator: Narrator,
    mappings: Sequence[str],
    events: tuple[Path, FittedNumbers] | None = None,
    values: ItemValues | None = None,
) -> dict[str, int]:
    """Write the samples of train and test; the same histories and rules give the same files.

    Args:
        directory: The dataset directory.
        histories: With the positions of the samples.
        rules: Length, seed and kind of the draws.
        vocabularies: What negatives are drawn from, and the items' features.
        sizes: How many ids each domain has.
        scheduler: Where to work.
        narrator: Hears of every part.
        events: Of each encoded key, and the mean share; None for what was fitted before.
        values: Of items' features that change; None for the last known ones.
        mappings: What to write, ``train`` and ``test`` as a rule.

    Returns:
        Mapping -> the number of its samples.
    """
    expected = {mapping: histories.count_samples(mapping, rules.twins) for mapping in mappings}
    parts = []
    for mapping, rows in expected.items():
        (directory / mapping).mkdir()
        of = count_parts(rows)
        parts += [Part(mapping, number, of) for number in range(of)]
    files = {
        mapping: [part.file for part in parts if part.mapping == mapping] for mapping in expected
    }
    spec = dataset_spec(histories.columns, sizes, rules.max_sequence_length, files)
    written = dict.fromkeys(expected, 0)
    with narrator.phase("writing samples", sum(expected.values())) as report:
        schema = to_merlin_schema(spec)
        for mapping, rows in sample_all(
            histories, parts, rules, vocabularies, schema, directory, scheduler, events, values
        ):
            report(rows, rows)
            written[mapping] += rows
    write_documents(directory, spec)
    return written
