"""What every rank of a test of ``fit`` under horovodrun does; the first writes what came out."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import tensorflow as tf  # noqa: E402

from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.parallel.ranks import collectives  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402


def fit(directory: Path) -> dict[str, np.ndarray]:
    """Train for two epochs; ranks begin with different weights, rates and seeds."""
    ranks = collectives.joined()
    dataset = DatasetDirectory.open(directory)
    tf.keras.utils.set_random_seed(1 + ranks.rank)
    model = build_model("din", dataset.schema, embedding_dim=4, stage_two_mlp_dims=(8,))
    model.compile("lazy_adam", metrics=["auc"])
    model.optimizer.learning_rate = 0.001 * (1 + ranks.rank)
    stop = tf.keras.callbacks.EarlyStopping("val_loss", patience=5)
    arguments = {"validation_data": dataset, "callbacks": [stop], "verbose": 0}
    history = model.fit(dataset, batch_size=20, epochs=2, **arguments).history
    assert type(model.optimizer).__module__ == "merlin_sim.parallel.steps.optimizers"
    found = {name: np.array(history[name]) for name in ("loss", "val_auc")}
    found["predictions"] = model.predict(dataset, batch_size=16)
    found["rate"] = model.optimizer.learning_rate.numpy()
    for index, variable in enumerate([*model.weights, *model.optimizer.variables]):
        found[f"{index}/{variable.name}"] = variable.numpy()
    for other in collectives.gather_objects(found, ranks):
        for name, array in found.items():
            np.testing.assert_array_equal(other[name], array, err_msg=name)
    return found


if __name__ == "__main__":
    arrays = fit(Path(sys.argv[1]))
    if collectives.joined().is_first:
        np.savez(sys.argv[2], **{name.replace("/", "|"): array for name, array in arrays.items()})
