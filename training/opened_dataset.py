"""Opens a run's dataset and holds it against its model, without TensorFlow: before heavy work."""

from __future__ import annotations

from ..schemas.channels import CONTRACTS
from ..schemas.dataset import Dataset
from ..schemas.exceptions import MerlinSimError
from .config import RunConfig


def open_dataset(config: RunConfig) -> Dataset:
    """Open the directory; both mappings must be there, in parquet.

    Raises:
        MerlinSimError: with everything in which the dataset is not what the model takes.
    """
    contract = CONTRACTS.get(config.model_type)
    if contract is None:
        known = ", ".join(CONTRACTS)
        raise MerlinSimError(
            f"`model_type` should be one of {known}. Received: {config.model_type!r}"
        )
    dataset = Dataset.open(config.dataset_dir, feature_spec=config.feature_spec)
    contract.check(dataset.spec)
    for mapping in ("train", "test"):
        dataset.files(mapping)
    return dataset
