"""Boosted trees on what a history counts, and popularity alone: what models are put beside.

Of each feature of the target the trees read what :class:`HistoryCounts` gives a model (how often
it stands in the newest 10, 30, 100 positions and in all of them, at what share, how recently), and
how often the item and its features train at all. They see no id.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from sklearn.ensemble import HistGradientBoostingClassifier

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models.blocks.history_counts import HistoryCounts, Seen
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.evaluation.evaluate import Evaluation, HeldOutMetrics

ROWS = 2048
MOST_TREES = 400
RATES = (0.05, 0.1)


class Samples(NamedTuple):
    """The samples of one mapping, as the trees see them."""

    counts: np.ndarray
    targets: np.ndarray
    """The targets' ids, a column for each feature, the item first."""
    labels: np.ndarray
    users: np.ndarray

    def score(self, scores: np.ndarray) -> Evaluation:
        """Compute the metrics of scores from 0 to 1, as a run does."""
        order = np.argsort(self.users, kind="stable")  # those of a user one after another
        metrics = HeldOutMetrics("user", True, ())
        metrics.update(self.labels[order], scores[order], {"user": self.users[order]})
        return metrics.result(0, Ranks(), None, False)[0]


def read_samples(dataset: DatasetDirectory, mapping: str) -> Samples:
    """Count what each sample's history says of its target."""
    channels = dataset.channels
    target, history = channels["target_item_features"], channels["positive_history"]
    columns = [*channels["label"], *channels["user_features"], *target, *history]
    feed = open_loader(dataset, mapping, columns, ROWS, Ranks())
    length = int(dataset.spec.feature_spec[history[0]].dimensions[0])
    counts = HistoryCounts(length)

    @tf.function(reduce_retracing=True, autograph=False)
    def count(batch):
        ids = {name: batch[name][:, tf.newaxis] for name in target}
        seen = {name: batch[other] for name, other in zip(target, history, strict=True)}
        return counts(ids, seen, Seen(seen[target[0]] > 0, None))[:, 0]

    parts = []
    for batch, labels in feed:
        ids = np.stack([batch[name].numpy() for name in target], axis=1)
        users = batch[channels["user_features"][0]].numpy()
        parts.append((count(batch).numpy(), ids, labels.numpy(), users))
    return Samples(*map(np.concatenate, zip(*parts, strict=True)))


@dataclass
class Popularity:
    """How often each id was a positive target in training."""

    counts: list[np.ndarray]

    @classmethod
    def of(cls, samples: Samples) -> Popularity:
        """Count the positives."""
        positives = samples.targets[samples.labels > 0.5]
        return cls([np.bincount(ids) for ids in positives.T])

    def __call__(self, samples: Samples) -> np.ndarray:
        """Return log(1 + count), a column for each feature; an unknown id has 0."""
        found = [
            np.where(ids < len(known), known[np.minimum(ids, len(known) - 1)], 0)
            for ids, known in zip(samples.targets.T, self.counts, strict=True)
        ]
        return np.log1p(np.stack(found, axis=1)).astype(np.float32)


def popularity_and_trees(path, seed: int) -> dict[str, tuple[Evaluation, Evaluation]]:
    """Fit both on the training samples; return the evaluations of validation and test data.

    Rate and number of trees are those with the best AUC of the validation data.
    """
    dataset = DatasetDirectory.open(path)
    parts = [read_samples(dataset, mapping) for mapping in ("train", "validation", "test")]
    popularity = Popularity.of(parts[0])
    seen = [np.concatenate([part.counts, popularity(part)], axis=1) for part in parts]
    item = [popularity(part)[:, 0] for part in parts]
    scores = {"popularity": [values / max(1.0, item[0].max()) for values in item[1:]]}
    best = None
    for rate in RATES:
        trees = HistGradientBoostingClassifier(
            learning_rate=rate, max_iter=MOST_TREES, early_stopping=False, random_state=seed
        ).fit(seen[0], parts[0].labels)
        every = range(24, MOST_TREES, 25)
        stages = {n: s[:, 1] for n, s in enumerate(trees.staged_predict_proba(seen[1]))}
        for stage in every:
            auc = parts[1].score(stages[stage]).auc
            if best is None or auc > best[0]:
                test = next(
                    s[:, 1] for n, s in enumerate(trees.staged_predict_proba(seen[2])) if n == stage
                )
                best = auc, [stages[stage], test]
    assert best is not None
    scores["trees on counts"] = best[1]
    return {
        name: tuple(part.score(s) for part, s in zip(parts[1:], both, strict=True))
        for name, both in scores.items()
    }


def main() -> None:
    """Fit LightGBM, which the folder argv[2] has, on the rows of a dataset directory, argv[1].

    Prints the test AUC, and the seconds that counting, fitting and scoring took.
    """
    sys.path += sys.argv[2:]
    import lightgbm

    begin = time.perf_counter()
    dataset = DatasetDirectory.open(sys.argv[1])
    train, test = (read_samples(dataset, mapping) for mapping in ("train", "test"))
    popularity = Popularity.of(train)
    features = [np.concatenate([p.counts, popularity(p)], axis=1) for p in (train, test)]
    settings = {"objective": "binary", "learning_rate": 0.05, "seed": 1, "verbosity": -1}
    trees = lightgbm.train(settings, lightgbm.Dataset(features[0], train.labels), 200)
    auc = test.score(trees.predict(features[1])).auc
    print(json.dumps({"auc": auc, "seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    main()
