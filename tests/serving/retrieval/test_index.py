"""The index: what it finds, and that it opens whole and for its model alone."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from in_process import run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.serving.retrieval import index as index_directory
from merlin_sim.serving.retrieval import index as item_index
from merlin_sim.serving.retrieval.index import INDEX, MANIFEST, ItemIndex, open_index
from merlin_sim.serving.retrieval.towers import Towers
from merlin_sim.serving.retrieval.users import DatasetHistories
from merlin_sim.serving.servable import ServableError


def unit(rows, seed, dim=16):
    vectors = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_the_nearest_are_found_with_their_vectors():
    vectors, queries = unit(900, 1), unit(5, 2)
    index = ItemIndex.build([vectors[:400], vectors[400:]], 16)
    found, cosines = index.search(queries, 7)
    expected = np.argsort(-(queries @ vectors.T), axis=1)[:, :7]
    np.testing.assert_array_equal(found, expected + 1)
    np.testing.assert_array_equal(index.exact(queries, 7), expected + 1)
    np.testing.assert_allclose(cosines, np.sort(queries @ vectors.T)[:, :-8:-1], rtol=1e-5)
    np.testing.assert_array_equal(index.vectors(found[0]), vectors[expected[0]])
    assert index.recall == 1.0 and index.groups == index.looked_at == 1
    assert index.search(queries, 901)[0][:, -1].tolist() == [-1] * 5


@pytest.mark.slow
def test_groups_are_looked_at_until_enough_is_found(monkeypatch):
    monkeypatch.setattr(item_index, "EXACT_BELOW", 100)
    monkeypatch.setattr(item_index, "NEIGHBOURS", 50)
    vectors = unit(4000, 1)
    index = ItemIndex.build([vectors], 16)
    assert index.groups == 126 and 1 < index.looked_at < 126
    assert item_index.RECALL <= index.recall < 1
    queries = unit(30, 3)
    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :50] + 1
    near = [item_index.share_found(index.search(queries, 50, w)[0], exact) for w in (0, 3)]
    assert near[0] < near[1] and near[1] > item_index.RECALL_OF_ALL - 0.01
    assert item_index.share_found(index.exact(queries, 50), exact) > 0.999  # 16 bits
    found, cosines = index.search(queries, 50)
    own = np.stack([index.vectors(ids) for ids in found])
    np.testing.assert_allclose(own, vectors[found - 1], atol=1e-3)
    np.testing.assert_allclose(cosines, np.einsum("qd,qnd->qn", queries, own), rtol=1e-4)
    again = ItemIndex.build([vectors], 16)
    np.testing.assert_array_equal(again.search(queries, 9)[0], index.search(queries, 9)[0])
    index._groups.nprobe = fewer = index.looked_at - max(2, index.looked_at // 16)
    items = vectors[np.random.default_rng(item_index.SEED).permutation(4000)[: item_index.QUERIES]]
    wanted = np.argsort(-(items @ vectors.T), axis=1)[:, :50] + 1
    assert item_index.share_found(index.search(items, 50)[0], wanted) < item_index.RECALL, fewer
    users = ItemIndex.build([vectors], 16, -vectors[:5] + queries[:5])
    found = users.search(-vectors[:5] + queries[:5], 50)[0]
    assert item_index.share_found(found, index.exact(-vectors[:5] + queries[:5], 50)) >= 0.96


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
    index = ItemIndex.build([unit(100, 1)], 16)
    built, threads = index.faiss_index, []

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


def test_an_index_without_items_is_none():
    with pytest.raises(MerlinSimError, match="should have items"):
        ItemIndex.build([], 8)


def test_a_written_index_holds_every_items_vector(towers, index_path):
    index = open_index(index_path, towers)
    ids, vectors = next(towers.items())
    assert index.items == len(ids) == len(towers.catalogue.keys) - 1
    found, cosines = index.search(vectors[:20], 1)
    np.testing.assert_allclose(cosines, 1, rtol=1e-5)
    np.testing.assert_array_equal(index.vectors(found[:, 0]), vectors[found[:, 0] - 1])


def test_what_is_damaged_or_of_another_model_is_refused(towers, index_path, tmp_path, monkeypatch):
    def copy():
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return shutil.copytree(index_path, tmp_path / "copy")

    data = (copy() / INDEX).read_bytes()
    (tmp_path / "copy" / INDEX).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(MerlinSimError, match="not as it was written"):
        open_index(tmp_path / "copy", towers)
    (copy() / INDEX).unlink()
    with pytest.raises(MerlinSimError, match="not as it was written"):
        open_index(tmp_path / "copy", towers)
    text = (copy() / MANIFEST).read_text()
    (tmp_path / "copy" / MANIFEST).write_text(text.replace('"dim": 8', '"dim": 9'))
    with pytest.raises(MerlinSimError, match="digest"):
        open_index(tmp_path / "copy", towers)
    (copy() / MANIFEST).write_text(json.dumps({"format": 99}))
    with pytest.raises(MerlinSimError, match="format 2"):
        open_index(tmp_path / "copy", towers)
    with pytest.raises(MerlinSimError, match="cannot be read"):
        open_index(tmp_path, towers)
    monkeypatch.setattr(index_directory, "digest_of", lambda servable: "another")
    with pytest.raises(MerlinSimError, match="index of another model"):
        open_index(index_path, towers)


def test_a_model_without_vectors_has_no_index(ranker):
    with pytest.raises(ServableError, match="vectors of users and of items, as two_tower. .* din"):
        Towers(ranker)


def test_a_file_that_is_no_index_is_reported(tmp_path):
    (tmp_path / INDEX).write_bytes(b"nothing of the kind")
    with pytest.raises(MerlinSimError, match="expected an index"):
        ItemIndex.read(tmp_path / INDEX, 1.0)


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
