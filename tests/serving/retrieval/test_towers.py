"""An export's towers give the model's own vectors, with padded histories too."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from small_runs import TWO_TOWER

from merlin_sim.models import build_model
from merlin_sim.serving.retrieval.towers import Towers
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.triton.export import export_model

pytestmark = pytest.mark.slow

LENGTH = 20


@pytest.mark.parametrize("pad", [False, True])
def test_vectors_are_the_models(dataset, towers, tmp_path, pad):
    tf.keras.utils.set_random_seed(1)
    model = build_model("two_tower", dataset.schema, **TWO_TOWER)
    if pad:
        export_model(model, dataset, tmp_path / "servable", pad=True)
        towers = Towers(Servable.open(tmp_path / "servable"))
    ((ids, vectors),) = towers.items()
    history = ids[:7]
    categories = towers.encoder.encode_items(ids)
    columns = {"user_id": np.repeat(3, len(ids)), **categories}
    for name, of_items in (("item_id", history), ("cat_id", categories["cat_id_trgt"][:7])):
        padded = np.concatenate([np.zeros(LENGTH - 7, np.int64), of_items])
        columns[f"{name}_pos"] = np.tile(padded, (len(ids), 1))
    expected = model.forward({name: tf.constant(values) for name, values in columns.items()})
    np.testing.assert_allclose(vectors, expected.items[:, 0], rtol=1e-4, atol=1e-6)
    key = towers.catalogue.keys
    users = [entry for entry, number in towers.encoder.users[0].ids.items() if number == 3]
    event = {"user_id": users[0], "history": list(key[history]), "candidates": []}
    encoded = towers.encoder.encode(towers.encoder.parse(event))
    none = {**event, "user_id": None, "history": []}
    both = towers.users([encoded, towers.encoder.encode(towers.encoder.parse(none))])
    np.testing.assert_allclose(both[0], expected.users[0], rtol=1e-4, atol=1e-6)
    assert np.abs(both[0] - both[1]).max() > 1e-3 and np.isfinite(both).all()
    assert towers.dim == vectors.shape[1] == TWO_TOWER["tower_dim"]
