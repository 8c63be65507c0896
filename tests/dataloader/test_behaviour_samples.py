"""What a sample is: the same integers as ever, on every device, however it is compiled."""

from __future__ import annotations

import hashlib
import shutil
import threading
from dataclasses import replace
from itertools import islice

import gpu_worker
import merlin.io
import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from drawn_by_hand import drawn, key_of
from gpu_kernels import assert_made_alike
from small_users import RULES, write_users_dataset

from merlin_sim.dataloader import draws
from merlin_sim.dataloader.behaviour_samples import BehaviourSamples
from merlin_sim.dataloader.draws import Items, position_seed
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.dataloader.sample_columns import SampleColumns
from merlin_sim.dataloader.stored_rows import batches_of
from merlin_sim.dataloader.user_rows import UserRows, read_columns
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory

LENGTHS = np.random.default_rng(0).integers(0, 25, 300).tolist()
FILES = [[LENGTHS[:80], [0, 0], LENGTHS[80:150]], [LENGTHS[150:]]]

# Digests of batches as the loops that were compiled by numba made them (version 0.11), so many
# that each pair of values stands in one of them:
# (baskets, intervals, negatives, not in history, drawn by, candidates, shuffled, mapping, rank).
BEFORE = {
    (False, "minutes", 1, False, "popularity", 1, False, "train", 0): "134 fe9c1d5e85c4199d",
    (False, "minutes", 1, False, "popularity", 2, True, "train", 0): "67 f0394ef861bc14de",
    (False, "minutes", 1, True, "popularity", 2, False, "train", 0): "67 18176ebf694dbe70",
    (False, "minutes", 3, True, "popularity", 1, True, "test", 1): "24 e491f16bbd598c1c",
    (False, "minutes", 3, True, "popularity", 16, True, "train", 0): "19 597e8b6d1384084b",
    (False, "minutes", 3, True, "popularity", 4, False, "train", 1): "67 7975ffb502e9c103",
    (False, None, 1, False, "popularity", 8, True, "train", 1): "19 c8c368ddd824db0f",
    (False, None, 1, False, "uniform", 1, True, "test", 0): "12 d23830bef4897a6d",
    (False, None, 1, False, "uniform", 8, False, "test", 0): "6 7651530ccca08a70",
    (False, None, 3, False, "popularity", 16, False, "test", 0): "6 661354f6623cef4e",
    (False, None, 3, False, "popularity", 4, True, "test", 0): "6 f14fcc6c5f1a15b4",
    (True, "minutes", 1, False, "popularity", 1, False, "test", 0): "12 98c37afe483d5bd3",
    (True, "minutes", 1, True, "popularity", 8, True, "train", 1): "21 3debffbe3a050378",
    (True, "minutes", 3, False, "popularity", 4, False, "test", 1): "6 220c299a9b4a474a",
    (True, "minutes", 3, True, "popularity", 16, False, "train", 1): "21 e3e79eaed72d4750",
    (True, None, 1, True, "uniform", 2, True, "test", 1): "6 18f5a91788172ea9",
    (True, None, 1, True, "uniform", 8, False, "train", 0): "21 3c607325f9338abe",
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Directories by what their samples are made of; each is written once."""
    made = {}

    def dataset_of(baskets, intervals, negatives, not_in_history, by):
        key = (baskets, intervals, negatives, not_in_history, by)
        if key not in made:
            rules = replace(
                RULES,
                negatives_per_positive=negatives,
                negatives_not_in_history=not_in_history,
                negatives=by,
            )
            made[key] = write_users_dataset(
                tmp_path_factory.mktemp("users") / "dataset",
                FILES,
                rules,
                time_intervals=intervals,
                with_baskets=baskets,
            )
        return DatasetDirectory.open(made[key])

    return dataset_of


def loader_of(dataset, candidates, shuffle, mapping="train", rank=0, ranks=1, rows=48, **options):
    return open_loader(
        dataset, mapping, dataset.schema.column_names, rows * candidates, Ranks(rank, ranks),
        shuffle=shuffle, seed=3, window_rows=500, candidates=candidates, **options,
    )  # fmt: skip


def digest(batches):
    """Of all numbers of all batches, whatever their types."""
    found, count = hashlib.sha256(), 0
    for columns, labels, *weights in batches:
        for name in sorted(columns):
            values = np.ascontiguousarray(columns[name].numpy())
            kind = np.float32 if values.dtype.kind == "f" else np.int64
            found.update(name.encode() + values.astype(kind).tobytes())
        for values in (labels, *weights):
            found.update(np.asarray(values.numpy(), np.float32).tobytes())
        count += 1
    return f"{count} {found.hexdigest()[:16]}"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.slow] * (index % 3 > 0))
        for index, case in enumerate(BEFORE)
    ],
    ids=str,
)
def test_the_samples_are_those_of_before(datasets, case, request):
    *kind, candidates, shuffle, mapping, rank = case
    if mapping == "test":  # few batches
        request.getfixturevalue("eagerly")
    loader = loader_of(
        datasets(*kind), candidates, shuffle, mapping, rank, 3 if rank else 1,
        fresh_negatives=shuffle,
    )  # fmt: skip
    assert loader.global_batch_size == 48
    loader.start_at(2 if shuffle else 0, 1 if mapping == "train" else 0)
    assert digest(loader) == BEFORE[case]


@pytest.mark.slow
def test_eager_graph_and_xla_give_the_same_integers_and_a_gpu_has_kernels(datasets):
    dataset = datasets(True, "minutes", 1, True, "popularity")
    assert_made_alike(lambda: loader_of(dataset, 8, shuffle=True), at_least=50)


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Fewer of the users, with baskets."""
    directory = tmp_path_factory.mktemp("few") / "dataset"
    files = [[LENGTHS[:20], [0, 0], LENGTHS[20:40]], [LENGTHS[40:60]]]
    return DatasetDirectory.open(write_users_dataset(directory, files, with_baskets=True))


@pytest.mark.slow
def test_what_a_gpu_is_asked_runs_without_one(few):
    seen = gpu_worker.samples(few.path, 8)
    assert seen["same"] and seen["batches"] > 2


@pytest.mark.slow
def test_users_that_come_block_by_block_or_of_other_files_give_the_same_batches(few, tmp_path):
    """Files come in the order of the spec; Merlin would sort them by name."""
    resident = loader_of(few, 8, shuffle=True)
    streamed = loader_of(few, 8, shuffle=True, data_memory_mb=0.003)
    assert resident.are_resident and not streamed.are_resident
    assert "blocks of them" in streamed.describe_memory()
    steps = zip(resident.inputs(), streamed.inputs(), strict=True)
    for step, (one, other) in enumerate(steps):
        ours, theirs = resident.locations(step, one), streamed.locations(step, other)
        np.testing.assert_array_equal(ours, theirs)
    renamed = with_renamed_files(few, tmp_path / "renamed")
    of_renamed = (loader_of(renamed, 8, shuffle=True, data_memory_mb=m) for m in (4096, 0.003))
    found = set()
    for loader in (resident, streamed, *of_renamed):
        loader.start_at(1, 1)
        found.add(digest(loader))
    assert len(found) == 1


def with_renamed_files(dataset, path):
    """The dataset with files whose names stand in another order than in the spec."""
    shutil.copytree(dataset.path, path)
    spec = path / "feature_spec.yaml"
    for name, other in (("part.0", "z"), ("part.1", "a[1]*")):
        (path / f"users/{name}.parquet").rename(path / f"users/{other}.parquet")
        spec.write_text(spec.read_text().replace(f"{name}.parquet", f"{other}.parquet"))
    (path / "schema.pbtxt").unlink()
    return DatasetDirectory.open(path)


@pytest.mark.slow
def test_a_dropped_iterator_leaves_no_thread(few, eagerly):
    before = set(threading.enumerate())
    for candidates, memory in ((8, 4096), (8, 0.003), (1, 0)):
        loader = loader_of(few, candidates, shuffle=True, data_memory_mb=memory)
        for _ in range(3):
            for _ in loader.inputs():
                break
        for _ in loader:
            break
    del loader
    for thread in set(threading.enumerate()) - before:
        thread.join(100)
    assert set(threading.enumerate()) <= before


def test_users_read_by_merlins_own_loader_give_the_same_samples(datasets):
    dataset = datasets(False, None, 1, False, "popularity")
    rows = UserRows(dataset, "train")
    files = [str(path) for path in rows.files]
    source = merlin.io.Dataset(files, engine="parquet", cpu=True, schema=rows.schema)
    users = sum(group.users for group in rows.groups)
    batches = batches_of(mm.Loader(source, batch_size=1000, shuffle=False), users)
    block = rows.block_of(read_columns(batches), rows.groups)
    samples = BehaviourSamples(SampleColumns.read(dataset, dataset.schema))
    loader = loader_of(dataset, 1, shuffle=False)
    given = next(loader.inputs())
    seeds = tf.constant([RULES.seed, position_seed(RULES.seed)], tf.uint64)
    made = samples(rows.tensors(block), given.order[:, 0], seeds)
    tf.nest.map_structure(
        lambda one, other: np.testing.assert_array_equal(one.numpy(), other.numpy()),
        made,
        loader.make(given),
    )


@pytest.mark.timeout(60)
def test_a_thread_of_merlins_loader_that_ends_late_is_not_waited_for(datasets, slow_threads):
    dataset = datasets(False, None, 1, False, "popularity")
    slow_threads()
    loader = loader_of(dataset, 1, shuffle=False, data_memory_mb=1e-5)
    assert sum(len(batch[1]) for batch in loader) == loader.samples


@pytest.mark.timeout(60)
@pytest.mark.parametrize("memory", [4096, 1e-5])
def test_row_groups_without_users_are_passed_over(tmp_path, memory):
    directory = write_users_dataset(tmp_path / "users", [[[], [3, 4]], [[5, 6], []], [[]]])
    loader = loader_of(DatasetDirectory.open(directory), 4, False, data_memory_mb=memory)
    assert sum(int(weights.numpy().sum()) for _, _, weights in loader) == loader.samples == 20


@pytest.mark.slow
@pytest.mark.parametrize("candidates", [1, 8])
def test_negatives_that_nobody_reads_are_not_drawn(few, candidates):
    whole = loader_of(few, candidates, shuffle=True)
    part = loader_of(few, candidates, shuffle=True, negatives_read=2)
    for one, other in islice(zip(whole.inputs(), part.inputs(), strict=True), 3):
        (columns, *rest), (fewer, *same) = whole.make(one), part.make(other)
        kept = 2 + part.make_samples.windows - 1
        for name, values in columns.items():
            expected, received = values.numpy(), fewer[name].numpy()
            if name.endswith("_neg"):
                assert not received[:, :-kept].any()
                expected, received = expected[:, -kept:], received[:, -kept:]
            np.testing.assert_array_equal(received, expected)
        for values, others in zip(rest, same, strict=True):
            np.testing.assert_array_equal(values.numpy(), others.numpy())


@pytest.mark.parametrize("most_repeated", [0, 1 << 26])
@pytest.mark.parametrize(
    "counts",
    [[0, 5, 1, 0, 0, 9], [0, 1], [0, *[1] * 700], [0, 10**6, *[0, 1, 3] * 90], [0, 2**33, 1, 7]],
)
def test_a_draw_is_the_item_of_the_same_interaction(monkeypatch, counts, most_repeated):
    monkeypatch.setattr(draws, "MOST_REPEATED", most_repeated)
    items = Items(np.array(counts, np.int64), tf.int64)
    position = tf.range(300, dtype=tf.int64)
    of_user = draws.user_key(tf.constant(5, tf.uint64), tf.constant(3, tf.int64))
    key = draws.sample_key(of_user, position, tf.ones_like(position), tf.zeros_like(position))
    found = items.draw(key, 7).numpy()
    keys = [key_of(5, 3, position, 1) for position in range(300)]
    assert found.tolist() == [drawn(key, 7, counts) for key in keys]


@pytest.mark.parametrize("missing", [1, 3, 40])
def test_what_is_not_ones_own_is_drawn_however_little_that_is(missing):
    """The user has all but one item; the one is rare, or next to items that nobody takes."""
    counts = np.array([0, 1, 10**9, 2, 0, 7, *[1000] * 40])
    items = Items(counts, tf.int64)
    found = items.draw_unknown(tf.cast(tf.range(50), tf.uint64), lambda item: item != missing)
    assert (found.numpy() == missing).all()


def test_who_has_all_items_keeps_what_is_drawn():
    items = Items(np.array([0, 4, 0, 2]), tf.int64)
    keys = tf.cast(tf.range(30), tf.uint64)
    found = items.draw_unknown(keys, lambda item: tf.ones_like(item, tf.bool))
    assert set(found.numpy()) == {1, 3}
