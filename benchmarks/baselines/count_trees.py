"""What models are put beside: rules without training, boosted trees, logistic regression.

Of each feature of the target the trees and the regression read what :class:`HistoryCounts` gives a
model (how often it stands in the newest 10, 30, 100 positions and in all of them, at what share,
how recently), how often it stands in all that the user did, and what other users' training samples
say of it: how often it was taken, its share of positives, and how often it followed what the
history's newest positions hold; of all users, how many days ago it was seen last, and how popular
it was, in all and of late. They see no id.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROWS = 2048
RECENT = 10
"""Newest positions whose co-occurrence with the target is counted."""
FOLDS = 5
"""Parts of the users: what other users did is taken from the parts that a user is not of."""
SMOOTHING = 20.0
"""Samples at the mean share that are added to each id's."""
MOST_TREES, PATIENCE = 1000, 50
SETTINGS = {
    "objective": "binary",
    "metric": "auc",
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "num_threads": 1,
    "verbosity": -1,
}


class Samples(NamedTuple):
    """The samples of one mapping, [samples, ...]."""

    labels: np.ndarray
    users: np.ndarray
    """Their rows among the users, as those who only test have no id. Of stored rows: the ids."""
    targets: np.ndarray
    """The targets' ids, a column for each feature, the item first."""
    newest: np.ndarray
    """The same of the newest positions, [samples, RECENT, features]; 0 where there is none."""
    counts: np.ndarray
    known: np.ndarray
    """log(1 + how often the user had the target's features ever), then log(1 + how many days ago
    anybody had), their popularity and recent popularity as of the sample's time, where the dataset
    has these."""

    def take(self, chosen: np.ndarray) -> Samples:
        """Return some of the samples."""
        return Samples(*(column[chosen] for column in self))


def read_samples(dataset: Any, mapping: str) -> Samples:
    """Count what each sample's history says of its target."""
    import tensorflow as tf

    from merlin_sim.dataloader.open_loader import open_loader
    from merlin_sim.foundation.ranks import Ranks
    from merlin_sim.models.blocks.history_counts import HistoryCounts
    from merlin_sim.workflows.feature import (
        LIFETIME,
        POPULARITY,
        RECENCY,
        RECENT_POPULARITY,
        TARGET_SUFFIX,
    )

    channels = dataset.channels
    targets, histories = channels["target_item_features"], channels["positive_history"]
    numbers = channels.get("target_item_numerical", [])
    endings = [LIFETIME, *(f"_{kind}" for kind in (RECENCY, POPULARITY, RECENT_POPULARITY))]
    stems = [name.removesuffix(TARGET_SUFFIX) for name in targets]
    columns = ([stem + ending + TARGET_SUFFIX for stem in stems] for ending in endings)
    read = [name for of_ending in columns for name in numbers if name in of_ending]
    of_ids = channels["user_features"][:1] if dataset.users is None else []
    columns = [*channels["label"], *of_ids, *targets, *read, *histories]
    feed = open_loader(dataset, mapping, columns, ROWS, Ranks())
    length = int(dataset.spec.feature_spec[histories[0]].dimensions[0])
    counts = HistoryCounts(length)

    @tf.function(reduce_retracing=True, autograph=False)
    def count(batch):
        asked = {name: batch[name][:, tf.newaxis] for name in targets}
        seen = {name: batch[other] for name, other in zip(targets, histories, strict=True)}
        return counts(asked, seen, seen[targets[0]] > 0)[:, 0]

    parts = []
    for step, given in enumerate(feed.inputs()):
        batch, labels = feed.whole(given)
        columns = [np.zeros((len(labels), 0), np.float32), *(batch[name] for name in read)]
        known = np.concatenate([np.reshape(c, (len(labels), -1)) for c in columns], axis=1)
        newest = np.stack([batch[name].numpy()[:, -RECENT:] for name in histories], axis=2)
        target = np.stack([batch[name].numpy() for name in targets], axis=1)
        users = feed.locations(step, given)[0]
        if of_ids:
            users = feed.users_of(batch[of_ids[0]].numpy(), step, given)
        parts.append((labels.numpy(), users, target, newest, count(batch).numpy(), known))
    return Samples(*map(np.concatenate, zip(*parts, strict=True)))


def of_others(train: Samples, asked: Samples) -> np.ndarray:
    """Say of each target's features what other users' training samples say: [samples, 4 each].

    These are log(1 + positives), the share of positives, and the mean and the largest of its
    co-occurrence with the newest positions, c / sqrt(a b) of a pair that positives have c times.
    """
    features = asked.targets.shape[1]
    found = np.zeros((len(asked.labels), features, 4), np.float32)
    every = [
        ids.reshape(-1, features) for part in (train, asked) for ids in (part.targets, part.newest)
    ]
    sizes = 1 + np.max([ids.max(axis=0) for ids in every], axis=0)
    for fold in range(FOLDS):
        known, rows = train.take(train.users % FOLDS != fold), asked.users % FOLDS == fold
        for index, size in enumerate(sizes):
            columns = _of(known, asked.take(rows), index, int(size))
            found[rows, index] = np.stack(list(columns), axis=1)
    return found.reshape(len(found), -1)


def _of(known: Samples, asked: Samples, index: int, size: int) -> Iterator[np.ndarray]:
    target, newest = asked.targets[:, index], asked.newest[:, :, index]
    clicks = known.labels > 0.5
    shown = np.bincount(known.targets[:, index], minlength=size)
    taken = np.bincount(known.targets[clicks, index], minlength=size)
    yield np.log1p(taken[target])
    share = (taken + SMOOTHING * clicks.mean()) / (shown + SMOOTHING)
    yield share[target]
    before = known.newest[clicks][:, :, index]
    pairs = before.astype(np.int64) * size + known.targets[clicks, index, None]
    pairs, count = np.unique(pairs[before > 0], return_counts=True)
    if not len(pairs):
        yield from np.zeros((2, len(target)))
        return
    wanted = newest.astype(np.int64) * size + target[:, None]
    at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    together = np.where((pairs[at] == wanted) & (newest > 0), count[at], 0)
    often = np.bincount(before.ravel(), minlength=size)
    near = together / np.sqrt(np.maximum(1, often[newest] * taken[target][:, None]))
    yield near.mean(axis=1)
    yield near.max(axis=1)


class Table(NamedTuple):
    """What baselines read of one mapping."""

    labels: np.ndarray
    users: np.ndarray
    features: np.ndarray
    rules: dict[str, np.ndarray]
    """Scores that need no training, by what they say."""


def tables(path: Path) -> dict[str, Table]:
    """Read the mappings of a dataset of users, with counts of whole histories."""
    from merlin_sim.schemas.dataset import DatasetDirectory
    from merlin_sim.workflows.checks.feature_counts import key_order, step_scores

    dataset = DatasetDirectory.open(path)
    item = dataset.channels["target_item_features"][0]
    domain = dataset.schema[item].int_domain
    ranks = key_order(path / f"categories/{domain.name}.parquet", int(domain.max) + 1)
    parts = {name: read_samples(dataset, name) for name in ("train", "validation", "test")}
    found = {}
    for name, part in parts.items():
        others = of_others(parts["train"], part)
        windows = ((part.counts.shape[1] - 1) // part.targets.shape[1] - 1) // 2
        rules = {
            "rule: key above the last": step_scores(
                ranks, part.targets[:, 0], part.newest[:, -1, 0]
            ),
            "rule: times in the window": part.counts[:, windows - 1],
            "rule: times ever": part.known[:, 0],
            "rule: the item's mean": others[:, 1],
        }
        features = np.concatenate([part.counts, part.known, others], axis=1)
        found[name] = Table(part.labels, part.users, features, rules)
    return found


def fit_trees(parts: dict[str, Table], rate: float, seed: int) -> list[np.ndarray]:
    """Fit LightGBM, with as many trees as are best on validation data; score that and test."""
    import lightgbm

    train, held_out = parts["train"], parts["validation"]
    data = lightgbm.Dataset(train.features, train.labels)
    trees = lightgbm.train(
        {**SETTINGS, "learning_rate": rate, "seed": seed},
        data,
        MOST_TREES,
        valid_sets=[data.create_valid(held_out.features, held_out.labels)],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )
    return [trees.predict(parts[name].features) for name in ("validation", "test")]


def fit_regression(parts: dict[str, Table], rate: float, seed: int) -> list[np.ndarray]:
    """Fit a logistic regression on the same features, scaled; ``rate`` is the inverse penalty."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=rate, max_iter=200))
    model.fit(parts["train"].features, parts["train"].labels)
    held_out = (parts[name].features for name in ("validation", "test"))
    return [model.predict_proba(features)[:, 1] for features in held_out]


def main() -> None:
    """Fit LightGBM, which the folder argv[2] has, on the rows of a dataset directory, argv[1].

    Prints the test AUC, and the seconds that counting, fitting and scoring took.
    """
    sys.path += sys.argv[2:]
    import lightgbm
    from sklearn.metrics import roc_auc_score

    from merlin_sim.schemas.dataset import DatasetDirectory

    begin = time.perf_counter()
    dataset = DatasetDirectory.open(sys.argv[1])
    train, test = (read_samples(dataset, mapping) for mapping in ("train", "test"))
    features = [np.concatenate([p.counts, of_others(train, p)], axis=1) for p in (train, test)]
    settings = {**SETTINGS, "learning_rate": 0.05, "seed": 1}
    trees = lightgbm.train(settings, lightgbm.Dataset(features[0], train.labels), 200)
    auc = roc_auc_score(test.labels, trees.predict(features[1]))
    print(json.dumps({"auc": auc, "seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    main()
