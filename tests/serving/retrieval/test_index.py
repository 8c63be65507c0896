"""An export's towers give the model's vectors; their index opens whole and for its model alone."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from in_process import run
from small_runs import TWO_TOWER

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models import build_model
from merlin_sim.serving.retrieval import index as item_index
from merlin_sim.serving.retrieval.index import INDEX, MANIFEST, ItemIndex, open_index
from merlin_sim.serving.retrieval.towers import Towers
from merlin_sim.serving.retrieval.users import DatasetHistories
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.triton.export import export_model

LENGTH = 20


@pytest.mark.slow
def test_vectors_of_towers_are_the_models_of_padded_histories_too(dataset, towers, tmp_path):
    tf.keras.utils.set_random_seed(1)
    model = build_model("two_tower", dataset.schema, **TWO_TOWER)
    export_model(model, dataset, tmp_path / "servable", pad=True)
    ((ids, _),) = towers.items()
    categories = towers.encoder.encode_items(ids)
    columns = {"user_id": np.repeat(3, len(ids)), **categories}
    for name, of_items in (("item_id", ids[:7]), ("cat_id", categories["cat_id_trgt"][:7])):
        padded = np.concatenate([np.zeros(LENGTH - 7, np.int64), of_items])
        columns[f"{name}_pos"] = np.tile(padded, (len(ids), 1))
    expected = model.forward({name: tf.constant(values) for name, values in columns.items()})
    (user,) = [key for key, number in towers.encoder.users[0].ids.items() if number == 3]
    event = {"user_id": user, "history": list(towers.catalogue.keys[ids[:7]]), "candidates": []}
    none = {**event, "user_id": None, "history": []}
    for found in (towers, Towers(Servable.open(tmp_path / "servable"))):
        ((_, vectors),) = found.items()
        np.testing.assert_allclose(vectors, expected.items[:, 0], rtol=1e-4, atol=1e-6)
        both = found.users([found.encoder.encode(found.encoder.parse(e)) for e in (event, none)])
        np.testing.assert_allclose(both[0], expected.users[0], rtol=1e-4, atol=1e-6)
        assert np.abs(both[0] - both[1]).max() > 1e-3 and np.isfinite(both).all()
        assert found.dim == vectors.shape[1] == TWO_TOWER["tower_dim"]


def unit(rows, seed, dim=16):
    vectors = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def nearest(queries, vectors, count):
    """The ids of the nearest, by comparing all."""
    return np.argsort(-(queries @ vectors.T), axis=1)[:, :count] + 1


def test_the_nearest_are_found_with_their_vectors():
    vectors, queries = unit(900, 1), unit(5, 2)
    index = ItemIndex.build([vectors[:400], vectors[400:]], 16)
    found, cosines = index.search(queries, 7)
    np.testing.assert_array_equal(found, nearest(queries, vectors, 7))
    np.testing.assert_array_equal(index.exact(queries, 7), found)
    np.testing.assert_allclose(cosines, np.sort(queries @ vectors.T)[:, :-8:-1], rtol=1e-5)
    np.testing.assert_array_equal(index.vectors(found[0]), vectors[found[0] - 1])
    assert index.recall == 1.0 and index.groups == index.looked_at == 1
    assert index.search(queries, 901)[0][:, -1].tolist() == [-1] * 5


@pytest.mark.slow
def test_groups_are_looked_at_until_enough_is_found(monkeypatch):
    monkeypatch.setattr(item_index, "EXACT_BELOW", 100)
    monkeypatch.setattr(item_index, "NEIGHBOURS", 50)
    vectors = unit(2000, 1)
    index = ItemIndex.build([vectors], 16)
    assert index.groups == 89 and 1 < index.looked_at < 89
    assert item_index.RECALL <= index.recall < 1
    queries = unit(30, 3)
    exact = nearest(queries, vectors, 50)
    near = [item_index.share_found(index.search(queries, 50, w)[0], exact) for w in (0, 3)]
    assert near[0] < near[1] and near[1] > item_index.RECALL_OF_ALL - 0.01
    assert item_index.share_found(index.exact(queries, 50), exact) > 0.999  # 16 bits
    found, cosines = index.search(queries, 50)
    own = np.stack([index.vectors(ids) for ids in found])
    np.testing.assert_allclose(own, vectors[found - 1], atol=1e-3)
    np.testing.assert_allclose(cosines, np.einsum("qd,qnd->qn", queries, own), rtol=1e-4)
    again = ItemIndex.build([vectors], 16)
    np.testing.assert_array_equal(again.search(queries, 9)[0], index.search(queries, 9)[0])
    groups = item_index.import_faiss().extract_index_ivf(index.faiss_index)
    groups.nprobe = fewer = index.looked_at - max(2, index.looked_at // 16)
    items = vectors[np.random.default_rng(item_index.SEED).permutation(2000)[: item_index.QUERIES]]
    wanted = nearest(items, vectors, 50)
    assert item_index.share_found(index.search(items, 50)[0], wanted) < item_index.RECALL, fewer
    asked = -vectors[:5] + queries[:5]
    users = ItemIndex.build([vectors], 16, asked)
    found = users.search(asked, 50)[0]
    assert item_index.share_found(found, index.exact(asked, 50)) >= 0.96


@pytest.mark.slow
def test_more_is_refined_where_four_bits_lose_much(monkeypatch):
    """Items that nearly coincide: of which the nearest are, only longer numbers tell."""
    monkeypatch.setattr(item_index, "EXACT_BELOW", 100)
    monkeypatch.setattr(item_index, "NEIGHBOURS", 20)
    spread = unit(2000, 1)
    near = unit(40, 2)[np.arange(2000) % 40] + 0.1 * spread
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    plain, crowded = ItemIndex.build([spread], 16), ItemIndex.build([near], 16)
    assert plain.faiss_index.k_factor < crowded.faiss_index.k_factor
    assert min(plain.recall, crowded.recall) >= item_index.RECALL


def test_a_search_stays_on_the_thread_that_asks():
    """Threads that wait for each other by spinning took a second on a busy machine, not 3 ms."""
    faiss = item_index.import_faiss()
    built, threads = ItemIndex.build([unit(100, 1)], 16).faiss_index, []

    class Seen:
        def search(self, *words, **named):
            threads.append(faiss.omp_get_max_threads())
            return built.search(*words, **named)

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    try:
        ids, _ = ItemIndex(Seen(), 1.0).search(unit(1, 2), 10)
        after = faiss.omp_get_max_threads()
    finally:
        faiss.omp_set_num_threads(before)
    assert ids.shape == (1, 10) and threads == [1] and after == 2


def test_what_is_damaged_or_of_another_model_is_refused(
    towers, index_path, ranker, tmp_path, monkeypatch
):
    whole = open_index(index_path, towers)
    ids, vectors = next(towers.items())
    assert whole.items == len(ids) == len(towers.catalogue.keys) - 1
    found, cosines = whole.search(vectors[:20], 1)
    np.testing.assert_allclose(cosines, 1, rtol=1e-5)
    np.testing.assert_array_equal(whole.vectors(found[:, 0]), vectors[found[:, 0] - 1])

    copy = tmp_path / "copy"
    data, text = (index_path / INDEX).read_bytes(), (index_path / MANIFEST).read_text()
    for name, content, said in (
        (INDEX, data[:-1] + bytes([data[-1] ^ 1]), "not as it was written"),
        (INDEX, None, "not as it was written"),
        (MANIFEST, text.replace('"dim": 8', '"dim": 9').encode(), "digest"),
        (MANIFEST, json.dumps({"format": 99}).encode(), "format 2"),
        (MANIFEST, None, "cannot be read"),
    ):
        shutil.copytree(index_path, copy)
        (copy / name).unlink()
        if content is not None:
            (copy / name).write_bytes(content)
        with pytest.raises(MerlinSimError, match=said):
            open_index(copy, towers)
        shutil.rmtree(copy)
    (tmp_path / INDEX).write_bytes(b"nothing of the kind")
    with pytest.raises(MerlinSimError, match="expected an index"):
        ItemIndex.read(tmp_path / INDEX, 1.0)
    with pytest.raises(MerlinSimError, match="should have items"):
        ItemIndex.build([], 8)
    with pytest.raises(MerlinSimError, match="vectors of users and of items, as two_tower. .* din"):
        Towers(ranker)
    monkeypatch.setattr(item_index, "digest_of", lambda servable: "another")
    with pytest.raises(MerlinSimError, match="index of another model"):
        open_index(index_path, towers)


@pytest.mark.slow
def test_users_of_a_dataset_settle_how_much_is_looked_at(towers, dataset, tmp_path, monkeypatch):
    """With groups so small that of an item one alone would be enough."""
    monkeypatch.setattr(item_index, "EXACT_BELOW", 10)
    monkeypatch.setattr(item_index, "NEIGHBOURS", 20)
    where = ["index", towers.servable.path, "--dataset_dir", dataset.path]
    run(*where, "--output", tmp_path / "index")
    index = open_index(tmp_path / "index", towers)
    queries = towers.users_by(DatasetHistories(dataset.path).some(200))
    share = item_index.share_found(index.search(queries, 20)[0], index.exact(queries, 20))
    assert index.groups > 1 and index.recall >= item_index.RECALL
    assert share == pytest.approx(index.recall, abs=0.01)  # of what 16 bits keep
