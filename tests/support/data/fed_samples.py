"""The samples of a dataset directory as training is fed them, whatever its layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory

BATCH = 64


def fed_samples(directory: Path, mapping: str) -> dict[str, np.ndarray]:
    """All samples by column, in an order that their numbers say."""
    dataset = DatasetDirectory.open(directory)
    loader = open_loader(dataset, mapping, dataset.schema.column_names, BATCH, Ranks())
    batches = [(*batch[0].items(), ("label", batch[1])) for batch in loader]
    found = {
        name: np.concatenate([dict(batch)[name].numpy() for batch in batches])
        for name in dict(batches[0])
    }
    rows = [np.asarray(found[name], np.float64) for name in sorted(found)]
    rows = np.concatenate([values.reshape(len(values), -1) for values in rows], axis=1)
    order = np.lexsort(rows.T)
    return {name: values[order] for name, values in found.items()}


def assert_same_samples(users: Path, samples: Path) -> int:
    """Compare one row per user with one row per sample; gives how many samples there are."""
    made, stored = DatasetDirectory.open(users), DatasetDirectory.open(samples)
    assert made.users is not None and stored.users is None
    assert made.schema.column_names == stored.schema.column_names
    assert made.channels == stored.channels
    assert made.spec.feature_spec == stored.spec.feature_spec
    assert set(made.spec.source_spec) == set(stored.spec.source_spec)
    count = 0
    for mapping in stored.spec.source_spec:
        expected, found = fed_samples(samples, mapping), fed_samples(users, mapping)
        assert set(found) == set(expected)
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, f"{mapping}, {name}")
        count += len(expected["label"])
    return count
