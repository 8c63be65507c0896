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

CASES = {"dien-adam": {"long_seq_length": 8, "aux_mlp_dims": (8,)}, "din-lazy_adam": {}}


def fit_cases(directory: Path) -> dict[str, np.ndarray]:
    """Train each case for two epochs; ranks begin with different weights, rates and seeds."""
    ranks = collectives.joined()
    dataset = DatasetDirectory.open(directory)
    found = {}
    for case, options in CASES.items():
        model_type, optimizer = case.split("-")
        tf.keras.utils.set_random_seed(1 + ranks.rank)
        small = {"embedding_dim": 4, "stage_two_mlp_dims": (8, 4), **options}
        model = build_model(model_type, dataset.schema, **small)
        model.compile(optimizer, metrics=["auc"])
        model.optimizer.learning_rate = 0.001 * (1 + ranks.rank)
        stop = tf.keras.callbacks.EarlyStopping("val_loss", patience=5)
        arguments = {"validation_data": dataset, "callbacks": [stop], "verbose": 0}
        history = model.fit(dataset, batch_size=20, epochs=2, **arguments).history
        assert type(model.optimizer).__module__ == "merlin_sim.parallel.steps.optimizers"
        found |= {f"{case}/{name}": np.array(history[name]) for name in ("loss", "val_auc")}
        found[f"{case}/predictions"] = model.predict(dataset, batch_size=16)
        for index, variable in enumerate([*model.weights, *model.optimizer.variables]):
            found[f"{case}/{index}/{variable.name}"] = variable.numpy()
        found[f"{case}/rate"] = model.optimizer.learning_rate.numpy()
    for other in collectives.gather_objects(found, ranks):
        for name, array in found.items():
            np.testing.assert_array_equal(other[name], array, err_msg=name)
    return found


if __name__ == "__main__":
    arrays = fit_cases(Path(sys.argv[1]))
    if collectives.joined().is_first:
        np.savez(sys.argv[2], **{name.replace("/", "|"): array for name, array in arrays.items()})
