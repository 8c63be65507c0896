"""FuxiCTR's models of long histories on the rows of a dataset directory, for comparison.

    python fuxictr_models.py DATASET LONGCTR [--model SIM] [--rate 0.004] [--seed 1]
        [--batch 2048] [--scores FILE [--epochs 4]]

It needs an environment of its own (docs/benchmarks.md), and LONGCTR, the folder model_zoo/LongCTR
of FuxiCTR's repository: its package has no models. DATASET has the samples layout
(`merlin-sim data transcode` makes it of users). Each model has the values of its class, but for
vectors of 16 numbers a feature, as here. Users have no vector of their own.

With `--scores` FuxiCTR trains, evaluates and stops by validation data, and the file has the scores
of the test rows. Without, it trains for an epoch and is then evaluated on test data, as
`bench_published.py` does beside other code: samples/s of the step in the middle, and AUC.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import yaml
from fuxictr.features import FeatureMap

DIM = 16
PACKED = ("DIEN",)
"""What reads as many positions from the first on as are real, so that those come first."""


class Rows:
    """Batches in the form that LongCTR's models take: the target behind its history.

    What fills a history up stands before it, or where it is ``packed`` behind it.
    """

    def __init__(
        self,
        directory: Path,
        spec: dict[str, Any],
        mapping: str,
        batch: int,
        *,
        packed: bool = False,
    ) -> None:
        channels, self.batch, self.shuffle = spec["channel_spec"], batch, mapping == "train"
        self.asked_at: list[float] = []
        targets, histories = channels["target_item_features"], channels["positive_history"]
        files = [file for chunk in spec["source_spec"][mapping] for file in chunk["files"]]
        (label,) = channels["label"]
        table = pq.ParquetDataset([str(directory / file) for file in files]).read(
            [label, *targets, *histories]
        )
        self.labels = table[label].to_numpy().astype(np.float32)
        (length,) = spec["feature_spec"][histories[0]]["dimensions"]
        self.items: dict[str, Any] = {}
        first: Any = None
        for target, history in zip(targets, histories, strict=True):
            lists = table[history].combine_chunks()
            ends = np.diff(lists.offsets.to_numpy())
            padded = np.zeros((len(table), length + 1), np.int64)
            mask = np.arange(length)[None, :] >= length - ends[:, None]
            padded[:, :-1][mask] = lists.flatten().to_numpy()
            padded[:, -1] = table[target].to_numpy()
            if packed:
                if first is None:
                    first = np.argsort(padded[:, :-1] == 0, axis=1, kind="stable")
                padded[:, :-1] = np.take_along_axis(padded[:, :-1], first, axis=1)
            self.items[target] = torch.from_numpy(padded)

    def __len__(self) -> int:
        return -(-len(self.labels) // self.batch)

    def __iter__(self) -> Iterator[Any]:
        """Give labels, item features and which positions are real."""
        count = len(self.labels)
        order = np.random.permutation(count) if self.shuffle else np.arange(count)
        for start in range(0, count, self.batch):
            self.asked_at.append(time.perf_counter())
            rows = order[start : start + self.batch]
            items = {name: ids[rows] for name, ids in self.items.items()}
            first = next(iter(items.values()))
            mask = (first[:, :-1] > 0).float()
            flat = {name: ids.reshape(-1) for name, ids in items.items()}
            yield {"label": torch.from_numpy(self.labels[rows])}, flat, mask


def feature_map(spec: dict[str, Any]) -> FeatureMap:
    """Describe the items' features to FuxiCTR."""
    described = FeatureMap("rows", "")
    described.labels, described.default_emb_dim = ["label"], DIM
    for target in spec["channel_spec"]["target_item_features"]:
        described.features[target] = {
            "source": "item",
            "type": "categorical",
            "vocab_size": spec["feature_spec"][target]["cardinality"] + 1,
            "padding_idx": 0,
            "embedding_dim": DIM,
        }
    described.num_fields = described.get_num_fields()
    described.set_column_index()
    return described


def load_class(zoo: Path, name: str) -> Any:
    """Load a model's class from its file."""
    found = importlib.util.spec_from_file_location(name, zoo / name / f"{name}.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return getattr(module, name)


def make_model(model_class: Any, spec: dict[str, Any], rate: float, seed: int, root: str) -> Any:
    """Make a model that keeps its checkpoints in a folder."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    (Path(root) / "rows").mkdir()
    return model_class(
        feature_map(spec),
        embedding_dim=DIM,
        learning_rate=rate,
        optimizer="adam",
        loss="binary_crossentropy",
        metrics=["AUC"],
        model_root=root,
        verbose=0,
    )


def one_epoch(model: Any, train: Rows, test: Rows) -> dict[str, float]:
    """Train for one epoch, which ends with an evaluation; say how fast, and how well."""
    found: list[dict[str, float]] = []
    evaluate = model.evaluate

    def keep(*arguments: Any, **keywords: Any) -> dict[str, float]:
        found.append(evaluate(*arguments, **keywords))
        return found[-1]

    model.evaluate = keep
    model.fit(train, epochs=1, validation_data=test)
    steps = np.diff(train.asked_at)[3:]
    return {"samples/s": train.batch / statistics.median(steps), "auc": found[0]["AUC"]}


def whole_run(model: Any, rows: dict[str, Rows], epochs: int, scores: Path) -> dict[str, float]:
    """Train until validation data say to stop; keep scores and labels of the test rows."""
    begin = time.perf_counter()
    model.fit(rows["train"], epochs=epochs, validation_data=rows["validation"])
    validation_auc = float(model.evaluate(rows["validation"])["AUC"])
    test = rows["test"]
    np.savez(scores, scores=model.predict(test), labels=test.labels)
    return {"validation_auc": validation_auc, "seconds": time.perf_counter() - begin}


def main() -> None:
    """Train a model at a rate with a seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("longctr", type=Path)
    parser.add_argument("--model", default="SIM", help="DIN, DIEN, SIM, ETA, SDIM or TWIN")
    parser.add_argument("--rate", type=float, default=0.004)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=4, help="at most, with --scores")
    parser.add_argument("--scores", type=Path, help="file of the test scores")
    options = parser.parse_args()
    spec = yaml.safe_load((options.dataset / "feature_spec.yaml").read_text())
    mappings = ("train", "validation", "test") if options.scores else ("train", "test")
    packed = options.model in PACKED
    rows = {
        name: Rows(options.dataset, spec, name, options.batch, packed=packed) for name in mappings
    }
    model_class = load_class(options.longctr, options.model)
    with tempfile.TemporaryDirectory() as root:
        model = make_model(model_class, spec, options.rate, options.seed, root)
        if options.scores:
            found = whole_run(model, rows, options.epochs, options.scores)
        else:
            found = one_epoch(model, rows["train"], rows["test"])
    print(json.dumps({"model": options.model, **found}))


if __name__ == "__main__":
    main()
