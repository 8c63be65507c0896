"""Rows of samples become users where their histories are prefixes; what else is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_users import LONGEST, RULES, write_users_dataset

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.progress import Silence
from merlin_sim.schemas.dataset import DatasetDirectory, write_documents
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec
from merlin_sim.workflows.transcoding.users import SamplesTranscoder, users_to_samples

COLUMNS = ("label", "user", "land", "item_trgt", "kind_trgt", "item_pos", "kind_pos", "item_neg")
COLUMNS += ("kind_neg",)
TABLE = "categories/item.parquet"


class Reported(Silence):
    """Keeps what a run says."""

    def __init__(self):
        self.said = []

    def say(self, message):
        self.said.append(message)


def sample(label, user, target, history, drawn=None, land=1):
    """A row; an item's kind is 1 where it is odd, else 2. Zeros pad."""
    drawn = [1] * len(history) if drawn is None else drawn
    kind = [2 - item % 2 if item else 0 for item in history]
    other = [2 - item % 2 for item in drawn]
    return (label, user, land, target, 2 - target % 2, history, kind, drawn, other)


def pairs(user, *samples, land=1):
    """A positive of a target and a history, and a negative, for each."""
    return [
        sample(label, user, target if label else 1, history, land=land)
        for target, history in samples
        for label in (1, 0)
    ]


def write(directory, train, test, longest=3, **channels):
    (directory / "train").mkdir(parents=True)
    (directory / "test").mkdir()
    sizes = {"user": 9, "land": 2, "item": 9, "kind": 2}
    features = {"label": Feature("int8")}
    for name in COLUMNS[1:]:
        dimensions = (longest,) if name.endswith(("_pos", "_neg")) else None
        features[name] = Feature("int64", sizes[name.split("_")[0]], dimensions)
    sources = {}
    for mapping, rows in (("train", train), ("test", test)):
        columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
        pq.write_table(
            pa.table({n: list(v) for n, v in columns.items()}), f"{directory}/{mapping}/a"
        )
        sources[mapping] = (Chunk("parquet", COLUMNS, (f"{mapping}/a",)),)
    found = {
        "label": ("label",),
        "user_features": ("user", "land"),
        "target_item_features": ("item_trgt", "kind_trgt"),
        "positive_history": ("item_pos", "kind_pos"),
        "negative_history": ("item_neg", "kind_neg"),
        **channels,
    }
    write_documents(directory, FeatureSpec(features, sources, found))
    return directory


def transcode(source, output, seed=None):
    reported = Reported()
    dataset = DatasetDirectory.open(source)
    SamplesTranscoder(dataset, reported, seed).transcode(output)
    return " ".join(reported.said)


def rows_of(directory):
    return pq.read_table(directory / "users").to_pylist()


def user(number, item, train, test, land=1):
    return {
        "user": number, "land": land, "train_begin": train[0], "train_end": train[1],
        "test_begin": test[0], "test_end": test[1], "item": item, "user_hash": 0,
    }  # fmt: skip


def positives_of(directory):
    """Rows with label 1, without their padding and negatives."""
    names = [name for name in COLUMNS if not name.endswith("_neg")]
    rows = pq.read_table(directory, columns=names).to_pylist()
    for row in rows:
        row.update(item_pos=[*filter(None, row["item_pos"])])
        row.update(kind_pos=[*filter(None, row["kind_pos"])])
    return sorted(str(row) for row in rows if row["label"])


@pytest.mark.slow
def test_histories_are_chained_to_the_whole_one(tmp_path):
    train = pairs(2, (4, [5, 3]), (6, [5, 3, 4]), (7, [3, 4, 6]), land=2) + pairs(7, (9, [0, 8]))
    test = pairs(2, (8, [4, 6, 7]), land=2) + pairs(7, (1, [8, 9]))
    source = write(tmp_path / "samples", train[::-1], test)
    said = transcode(source, tmp_path / "users")
    assert rows_of(tmp_path / "users") == [
        user(2, [5, 3, 4, 6, 7, 8], (2, 5), (5, 6), land=2),
        user(7, [8, 9, 1], (1, 2), (2, 3)),
    ]
    assert pq.read_table(tmp_path / "users" / TABLE).to_pydict() == {
        "id": [1, 2, 3, 4, 5, 6, 7, 8, 9],
        "count": [0, 0, 0, 1, 0, 1, 1, 0, 1],
        "kind": [1, 1, 1, 2, 1, 2, 1, 2, 1],
    }
    assert "2 users. Positives and their histories are those" in said
    assert "Negatives are drawn anew, with the seed 12345" in said
    assert "1 items are in no row: they get kind 1" in said  # item 2
    users_to_samples(DatasetDirectory.open(tmp_path / "users"), tmp_path / "back", Silence())
    for mapping in ("train", "test"):
        stored, made = (positives_of(folder / mapping) for folder in (source, tmp_path / "back"))
        assert stored == made


def test_a_repeated_history_shows_by_the_shorter_one_before_it(tmp_path):
    train = pairs(2, *[(5, [5] * length) for length in range(4)])
    source = write(tmp_path / "samples", train, pairs(3, (1, [2])))
    transcode(source, tmp_path / "users")
    assert rows_of(tmp_path / "users")[0] == user(2, [5] * 4, (0, 4), (0, 0))


@pytest.mark.slow
def test_with_its_seed_users_and_samples_are_the_same_bytes(tmp_path):
    rules = replace(RULES, negatives_per_positive=2, seed=7)
    lengths = [[[3, 5, 2 * LONGEST, 4], [6, LONGEST + 1]], [[40, 2]]]
    users = write_users_dataset(tmp_path / "users", lengths, rules)
    samples, again, back = (tmp_path / name for name in ("samples", "again", "back"))
    users_to_samples(DatasetDirectory.open(users), samples, Silence())
    said = transcode(samples, again, 7)
    assert "8 users. Their samples are those of" in said and "negatives too" in said
    stored, made = (
        pa.concat_tables(map(pq.read_table, sorted(folder.glob("users/*"))))
        for folder in (users, again)
    )
    assert stored.equals(made.select(stored.column_names))
    users_to_samples(DatasetDirectory.open(again), back, Silence())
    files = [path.relative_to(samples) for path in samples.rglob("*") if path.is_file()]
    assert {p.parts[0] for p in files} >= {"train", "test", "categories", "feature_spec.yaml"}
    for file in files:
        assert (back / file).read_bytes() == (samples / file).read_bytes()
    said = transcode(samples, tmp_path / "other", rules.seed + 1)
    assert f"drawn anew, with the seed {rules.seed + 1}" in said


TEST = pairs(4, (1, [3]))
REFUSED = {
    "no prefixes": (
        pairs(2, (4, [5, 3]), (6, [5, 7, 4])),
        r"train/a, row \d: user 2: expected histories.*At position 1 of the history this row has "
        r"item 7, and .*train/a, row 1 has 3",
    ),
    "another target": (
        pairs(2, (4, [5]), (6, [5, 3])),
        r"train/a, row 3: .*At position 1 .* item 3, and .*train/a, row 1 has 4",
    ),
    "a gap": (
        pairs(2, (4, [5, 3, 1]), (6, [1, 4, 7])),
        r"train/a, row 3: user 2: .*cut to 3 items, as is that of .*train/a, row 1, and the "
        "samples between",
    ),
    "same time": (
        pairs(2, (4, [5, 3]), (6, [5, 3])),
        r"train/a, row 3: .*one target behind a history of 2 items, found 6, and 4 in .*same_time",
    ),
    "users without an id": (
        pairs(0, (4, [5, 3]), (6, [5, 3])),
        r"train/a, row 3: user 0: .*found 6, and 4 in [^ ]*, row 1. Users without an id all have 0",
    ),
    "a cycle of cut histories": (
        pairs(2, (6, [5, 6, 5]), (5, [6, 5, 6])),
        "user 2: expected a history that no other sample of the user repeats",
    ),
    "twice": (
        pairs(2, (4, [5, 3])) * 2,
        r"train/a, row 3: user 2: expected each sample once, found the one of .*train/a, row 1",
    ),
    "a lone negative": (
        [*pairs(2, (4, [5])), sample(0, 2, 3, [6])],
        r"train/a, row 3: user 2: expected a row with label 1 and the same history in train",
    ),
    "positions with a gap": (
        pairs(2, (4, [5]), (7, [5, 4, 6])),
        r"train/a, row 3: user 2: expected samples of train at positions .*Found position 1 "
        r"\(.*train/a, row 1\) and then 3",
    ),
    "a negative too many": (
        [*pairs(2, (4, [5]), (6, [5, 4])), sample(0, 2, 3, [5, 4])],
        r"train/a, row 3: user 2: expected 1 rows with label 0 .*Found 2",
    ),
    "no negatives": (
        [sample(1, 2, 4, [5])],
        r"train/a, row 1: user 2: expected 1 rows with label 0 .*Found 0",
    ),
    "another land": (
        pairs(2, (4, [5])) + pairs(2, (6, [5, 4]), land=2),
        r"row \d: user 2: land: expected \d, as in another row, found \d",
    ),
    "another kind": (
        [*pairs(2, (4, [5])), (0, 2, 1, 4, 1, [5], [1], [1], [1])],
        r"train/a, row 3: kind_trgt: expected 2 beside item 4, as elsewhere, found 1",
    ),
    "other lengths": (
        [(1, 2, 1, 4, 2, [5, 4], [1], [1], [1])],
        "train/a, row 1: kind_pos: expected as many values as item_pos has, found 1",
    ),
    "a label": ([sample(2, 2, 4, [5])], "train/a, row 1: label: expected 0 or 1, found 2"),
    "an id": ([sample(1, 2, 10, [5])], "row 1: item_trgt: expected an id of 1 to 9, found 10"),
    "too long": ([sample(1, 2, 4, [5] * 4)], "row 1: item_pos: expected at most 3 items"),
    "no positives": ([sample(0, 2, 4, [5])], "expected rows with label 1, found none"),
}  # fmt: skip


@pytest.mark.parametrize("train, message", REFUSED.values(), ids=REFUSED)
def test_what_users_rows_cannot_hold_is_refused(tmp_path, train, message):
    test = [sample(0, 4, 1, [3])] if "label 1, found none" in message else TEST
    source = write(tmp_path / "samples", train, test)
    with pytest.raises(MerlinSimError, match=message):
        transcode(source, tmp_path / "users")
    assert not (tmp_path / "users").exists()


def test_other_channels_are_refused(tmp_path):
    rows = (pairs(2, (4, [5])), TEST)
    context = {"user_features": ("user",), "context_features": ("land",)}
    source = write(tmp_path / "context", *rows, **context)
    with pytest.raises(MerlinSimError, match="Found context_features"):
        transcode(source, tmp_path / "users")
    source = write(tmp_path / "nobody", *rows, user_features=())
    message = "channel user_features: expected a feature that tells users apart"
    with pytest.raises(MerlinSimError, match=message):
        transcode(source, tmp_path / "users")


def test_counts_and_keys_of_the_datasets_own_items_stay(tmp_path):
    source = write(tmp_path / "samples", pairs(2, (4, [5])), TEST)
    stored = {"id": np.arange(1, 10), "key": list("abcdefghi"), "count": [3] * 9}
    stored["kind"] = [1, 2, 1, 2, 1, 2, 1, 2, 1]
    (source / "categories").mkdir()
    pq.write_table(pa.table(stored), source / TABLE)
    transcode(source, tmp_path / "users")
    assert (tmp_path / "users" / TABLE).read_bytes() == (source / TABLE).read_bytes()
    pq.write_table(pa.table(stored | {"kind": [2] * 9}), source / TABLE)
    with pytest.raises(MerlinSimError, match="row 2: kind_trgt: expected 2 beside item 1,"):
        transcode(source, tmp_path / "refused")
    pq.write_table(pa.table(stored | {"id": [1, 1, 3, 4, 5, 6, 7, 8, 9]}), source / TABLE)
    with pytest.raises(MerlinSimError, match="item.parquet: column id: expected each of 1 to 9"):
        transcode(source, tmp_path / "refused")


def test_the_command_takes_a_seed_for_users_alone(tmp_path, run_cli):
    source = write(tmp_path / "samples", pairs(2, (4, [5])), TEST)
    words = ("data", "transcode", "--input", source, "--output", tmp_path / "users", "--seed", 5)
    refused = run_cli(*words)
    assert "`seed` should be given with `--to users` only" in str(refused.exception)
    assert "train 2, test 2" in run_cli(*words, "--to", "users").output
    assert DatasetDirectory.open(tmp_path / "users").users.seed == 5
    words = ("data", "transcode", "--input", tmp_path / "users", "--output", tmp_path / "more")
    again = run_cli(*words, "--to", "users")
    assert "this one has one row per user" in str(again.exception)


def test_a_dataset_without_negative_histories_has_users_too(tmp_path):
    source = write(tmp_path / "samples", pairs(2, (4, [5]), (6, [5, 4])), TEST)
    stored = DatasetDirectory.open(source).spec
    names = tuple(name for name in COLUMNS if not name.endswith("_neg"))
    features = {name: stored.feature_spec[name] for name in names}
    sources = {
        mapping: (replace(chunk, features=names),)
        for mapping, (chunk,) in stored.source_spec.items()
    }
    channels = {k: v for k, v in stored.channel_spec.items() if k != "negative_history"}
    write_documents(source, FeatureSpec(features, sources, channels))
    transcode(source, tmp_path / "users")
    assert rows_of(tmp_path / "users")[0] == user(2, [5, 4, 6], (1, 3), (1, 1))


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(st.integers(1, 4), min_size=2, max_size=9), min_size=1, max_size=4))
def test_users_come_back_or_a_cut_history_repeats(histories):
    """Of few items histories repeat: then the order of samples is unknown, and never guessed."""
    rows = {"train": [], "test": []}
    for number, items in enumerate(histories, 1):
        for index in range(1, len(items)):
            seen = items[max(0, index - 3) : index]
            mapping = "train" if index < len(items) - 1 else "test"
            rows[mapping] += pairs(number, (items[index], seen))
    rows["train"] += pairs(9, (1, [2]))
    with TemporaryDirectory() as name:
        source = write(Path(name) / "samples", rows["train"][::-1], rows["test"])
        windows = [[tuple(i[n - 3 : n]) for n in range(3, len(i))] for i in histories]
        try:
            transcode(source, Path(name) / "users")
        except MerlinSimError as error:
            assert "no other sample of the user repeats" in str(error)
            ends = [{*own, tuple(i[-3:])} for own, i in zip(windows, histories, strict=True)]
            assert any(len(e) <= len(own) for e, own in zip(ends, windows, strict=True))
            return
        made = [row["item"] for row in rows_of(Path(name) / "users")]
        assert made == [*histories, [2, 1]]


@pytest.mark.slow
def test_what_preprocess_wrote_becomes_the_users_that_it_would_have_written(tmp_path, run_cli):
    random = np.random.default_rng(5)
    columns = {name: random.integers(1, most, 200) for name, most in (("u", 12), ("i", 40))}
    columns |= {"t": np.arange(200), "clicked": random.integers(0, 2, 200)}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")

    def preprocess(name, *options):
        result = run_cli(
            "preprocess", "log", tmp_path / "log.parquet", "--output_path", tmp_path / name,
            "--user_column", "u", "--item_column", "i", "--timestamp_column", "t",
            "--timestamp_unit", "s", "--shortest_sequence_for_user", 3, "--seed", 9, *options,
        )  # fmt: skip
        assert result.exit_code == 0, result.output

    options = ("--max_sequence_length", 5, "--negatives_per_positive", 2)
    for layout in ("samples", "users"):
        preprocess(layout, "--layout", layout, *options)
    assert "negatives too" in transcode(tmp_path / "samples", tmp_path / "made")
    written = [path for path in (tmp_path / "users").rglob("*") if path.is_file()]
    for path in written:
        made = tmp_path / "made" / path.relative_to(tmp_path / "users")
        assert made.read_bytes() == path.read_bytes()
    preprocess("labelled", "--label_column", "clicked", "--negatives", "none")
    with pytest.raises(MerlinSimError, match="workflow.json: expected negatives that were"):
        transcode(tmp_path / "labelled", tmp_path / "refused")
