"""Users' rows with everything that a log may tell: their samples are those of the other layout."""

from __future__ import annotations

import functools
import hashlib

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from click.testing import CliRunner
from gpu_kernels import assert_made_alike

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.gpu_forms import gpu_forms
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.channels import NEGATIVE_HISTORY, POSITIVE_HISTORY
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.scripts.main import cli
from merlin_sim.workflows.preprocess import dataset_writer

pytestmark = pytest.mark.slow

LENGTH = 12
FEATURES = """
features:
  device: {type: category, of: interaction}
  spent: {type: number, of: interaction, operators: [Normalize], lags: [1, 3]}
  age: {type: number, of: user}
  price: {type: number, of: item, operators: [LogOp]}
  genres: {type: list, of: item, longest: 3, separator: "|"}
  look: {type: vector, of: item, size: 2}
  when: {type: time, of: interaction, cycles: [hour]}
time_intervals: hours
crosses:
  where: {columns: [device, brand, country], buckets: 90}
encodings:
  what: [count, target]
  brand: [target, recency, recent_popularity]
smoothing: 3
lifetime_counts: [shelf]
"""
COUNTS = FEATURES.replace(
    "[count, target]\n  brand: [target, recency, recent_popularity]",
    "[count, popularity, recency, recent_popularity]",
)
COUNTS = COUNTS.replace("[shelf]", "[what, brand]")
KINDS = {
    "labels": (
        FEATURES,
        ["--label_column", "clicked", "--negatives", "uniform", "--negatives_per_positive", "2"],
    ),
    "all taken": (COUNTS, ["--negatives_not_in_history"]),
    "behaviours and labels": (
        "features: {device: {type: category, of: interaction}}",
        ["--behaviour_column", "did", "--history_behaviours", "view", "--label_column", "clicked"]
        + ["--order_of_equal_times", "log"],
    ),
}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    random = np.random.default_rng(11)
    users, items = 30, 60
    who = np.repeat(np.arange(users), random.integers(3, 30, users))
    rows = len(who)
    what = random.integers(0, items, rows)
    frame = pd.DataFrame(
        {
            "who": who,
            "what": what,
            "when": 1_700_000_000 + random.integers(0, 40, rows) * 3_600,
            "clicked": random.integers(0, 2, rows),
            "did": random.choice(["view", "cart", "buy"], rows),
            "device": random.choice(["phone", "desk", "tv"], rows),
            "country": [f"c{random.integers(3) if user % 2 else user % 3}" for user in who],
            "age": 20 + who % 7 + random.integers(0, 2, rows) * (who % 3),
            "spent": random.random(rows) * 9,
            "brand": what % 7,
            "shelf": what % 5,
            "price": 1 + what % 11 + random.integers(0, 2, rows) * (what % 2),
            "genres": [["a|b", "c", "", "b|c|a"][item % 4] for item in what],
            "look": [f"{item / 7:.3f}|{item % 3}" for item in what],
        }
    )
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    frame.to_parquet(path)
    return path


def preprocess(log, output, *options):
    command = ["preprocess", "log", log, *options, "--scheduler", "single", "--output_path", output]
    run = CliRunner().invoke(cli, [str(word) for word in command])
    assert run.exit_code == 0, (run.output, run.exception)


WHO = ["--user_column", "who", "--item_column", "what", "--timestamp_column", "when"]
WHO += ["--max_sequence_length", LENGTH]


@pytest.fixture(scope="module")
def datasets(log, tmp_path_factory):
    """Both layouts of a kind of log, by its name; with labels, items change their shelf."""

    @functools.cache
    def both(kind):
        root = tmp_path_factory.mktemp("datasets")
        features, options = KINDS[kind]
        (root / "features.yaml").write_text(features)
        frame = pd.read_parquet(log)
        if kind == "labels":
            frame["shelf"] = (frame["what"] + (frame["when"] > 1_700_070_000)) % 5
        frame.to_parquet(root / "log.parquet")
        given = [*WHO, "--user_feature_columns", "country", "--features", root / "features.yaml"]
        given += ["--item_feature_columns", "brand,shelf", *options]
        given += ["--shortest_sequence_for_user", 3]
        for layout in ("users", "samples"):
            preprocess(root / "log.parquet", root / layout, *given, "--layout", layout)
        return [DatasetDirectory.open(root / layout) for layout in ("users", "samples")]

    return both


def loader_of(dataset, mapping="train", candidates=None, shuffle=False, **options):
    size = 256 if candidates is None else 64 * candidates
    return open_loader(
        dataset, mapping, dataset.schema.column_names, size, Ranks(),
        shuffle=shuffle, seed=5, candidates=candidates, **options,
    )  # fmt: skip


def rows_of(loader):
    """All samples, one line of numbers each, sorted; of rows, what a candidate sees."""
    found = []
    channels = loader.directory.channels
    for columns, labels, *weights in loader:
        columns = {name: values.numpy() for name, values in columns.items()}
        made = columns if not weights else each_candidate(columns, labels.shape, channels)
        lines = [np.asarray(made[name], np.float64).reshape(labels.numpy().size, -1)
                 for name in sorted(made) if name not in channels[NEGATIVE_HISTORY]]  # fmt: skip
        lines = np.concatenate([labels.numpy().reshape(-1, 1), *lines], axis=1)
        found.append(lines[weights[0].numpy().reshape(-1) > 0] if weights else lines)
    rows = np.concatenate(found)
    return rows[np.lexsort(rows.T)]


def each_candidate(columns, shape, channels):
    """Columns of users x candidates, as rows have them."""
    users, candidates = shape
    ends = columns.pop("history_end")
    ends = np.repeat(ends, candidates // ends.shape[1], axis=1)
    made = {}
    for name, values in columns.items():
        if name in channels[NEGATIVE_HISTORY]:
            continue
        is_interval = name == "when_since_pos"
        if name in channels[POSITIVE_HISTORY] or is_interval:
            made[name] = np.zeros((users, candidates, LENGTH), values.dtype)
            for user, candidate in np.ndindex(users, candidates):
                row = values[user]
                if is_interval:
                    row = row[candidate // (candidates // values.shape[1])]
                seen = row[: ends[user, candidate]][-LENGTH:]
                made[name][user, candidate, LENGTH - len(seen) :] = seen
        elif values.ndim == 1:
            made[name] = np.repeat(values[:, None], candidates, axis=1)
        else:
            made[name] = values
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_users_are_the_samples_that_are_stored_and_candidates_see_what_those_see(
    datasets, kind, eagerly
):
    users, samples = datasets(kind)
    of_position, memory = users.users.samples_per_position, 0.005 if "taken" in kind else 4096
    candidates = of_position if kind == "labels" else 6 * of_position
    for mapping in users.spec.source_spec:
        stored = rows_of(loader_of(samples, mapping))
        if mapping == "validation":
            loader = loader_of(users, mapping)
        else:
            loader = loader_of(users, mapping, candidates, shuffle=True, data_memory_mb=memory)
        np.testing.assert_array_equal(rows_of(loader), stored)
        assert loader.samples == len(stored)
    if kind == "labels":
        with pytest.raises(MerlinSimError, match="`candidates` should be 3.* histories hold shelf"):
            loader_of(users, candidates=6)


def test_eager_graph_and_xla_give_the_same_numbers_and_a_gpu_has_kernels(datasets):
    users, _ = datasets("labels")
    assert_made_alike(lambda: loader_of(users, candidates=3, shuffle=True), at_least=60)


def test_all_that_interactions_take_on_a_gpu_is_counted(datasets):
    rows = loader_of(datasets("all taken")[0]).users
    with gpu_forms(True):
        made = rows.tensors(rows.read(range(len(rows.groups))))
    taken = {id(t): t for t in tf.nest.flatten(made) if len(t) == len(made.items)}
    assert sum(tensor.dtype.size for tensor in taken.values()) <= rows.bytes_of_interaction


def test_ranks_and_restarts_change_nothing(datasets, eagerly):
    users, _ = datasets("labels")
    names = users.schema.column_names

    def batches(rank, ranks, first=0):
        feed = open_loader(users, "train", names, 120, Ranks(rank, ranks), shuffle=True, seed=5)
        feed.start_at(1, first)
        return [digest(batch) for batch in feed], feed

    whole, loader = batches(0, 1)
    assert len(whole) > 3 and batches(0, 1, 3)[0] == whole[3:]
    joined = np.concatenate([rows_of(batches(rank, 2)[1]) for rank in range(2)])
    np.testing.assert_array_equal(joined[np.lexsort(joined.T)], rows_of(loader))


def digest(batch):
    flat = [np.ascontiguousarray(values.numpy()) for values in tf.nest.flatten(batch)]
    return hashlib.sha256(b"".join(values.tobytes() for values in flat)).hexdigest()


def test_users_without_a_history_have_samples_too(tmp_path, monkeypatch, eagerly):
    """They took items alone that the fitted workflow does not know; the last one is such a user."""
    monkeypatch.setattr(dataset_writer, "INTERACTIONS_PER_GROUP", 4)
    users = "abcdefg"
    first = [(who, item, item, 1) for who in users for item in range(4)]
    then = [
        (who, 99 if number == 3 else number, 10 + number, int(who in "be" or number == 3))
        for who in users
        for number in range(4)
    ]
    (tmp_path / "features.yaml").write_text("time_intervals: seconds")
    fitted = [*WHO, "--label_column", "clicked", "--features", tmp_path / "features.yaml"]
    fitted += ["--negatives", "uniform", "--fit_on", "all"]
    every = ["--shortest_sequence_for_user", 1, "--shortest_sequence_for_training", 0]
    every += ["--validation", "none"]
    for name, rows, given in (
        ("first", first, fitted),
        ("users", then, ["--fitted", tmp_path / "first", "--layout", "users"]),
    ):
        log = pd.DataFrame(rows, columns=["who", "what", "when", "clicked"])
        log.assign(when=log["when"] + 1_700_000_000).to_parquet(tmp_path / f"{name}.parquet")
        preprocess(tmp_path / f"{name}.parquet", tmp_path / name, *given, *every)
    dataset = DatasetDirectory.open(tmp_path / "users")
    for mapping, shown, taken in (("train", 5 * 2, 2 * 2), ("test", 5, 2)):
        found = None
        for candidates, memory in ((None, 1e-5), (4, 4096)):
            loader = loader_of(dataset, mapping, candidates, data_memory_mb=memory)
            rows = rows_of(loader)
            found = rows if found is None else found
            assert len(rows) == shown + 2 * taken
            np.testing.assert_array_equal(rows, found)
