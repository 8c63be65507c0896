"""One user, many candidates: candidates per second with the user's part computed once.

    .venv/bin/python benchmarks/bench_candidates.py [--seconds 2] [--model_type sim]

Against the plain batched model, in which every row repeats the user; both from one encoded event.
Random weights of published
size (embedding 16, history 90 + 10, tables as in Amazon Books); the scores of both are compared.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec  # noqa: E402
from merlin_sim.schemas.merlin_schema import to_merlin_schema  # noqa: E402
from merlin_sim.serving.encoder import EncodedEvent  # noqa: E402
from merlin_sim.serving.scorer import Scorer  # noqa: E402
from merlin_sim.serving.servable import Servable  # noqa: E402
from merlin_sim.serving.signatures import one_user_batch, plain_batch  # noqa: E402
from merlin_sim.serving.triton.export import export_model  # noqa: E402

SIZES = {"user_id": 192_403, "item_id": 367_982, "cat_id": 1_600}
HISTORY = 100


def published_spec(history: int = HISTORY) -> FeatureSpec:
    """A dataset of the published form and size, but for the length of histories."""
    features = {"label": Feature("int8"), "user_id": Feature("int64", SIZES["user_id"])}
    for suffix, dimensions in (("trgt", None), ("pos", (history,)), ("neg", (history,))):
        for name in ("item_id", "cat_id"):
            column = f"{name}_{suffix}"
            features[column] = Feature("int64", SIZES[name], dimensions)
    channels = {
        "label": ("label",),
        "user_features": ("user_id",),
        "target_item_features": ("item_id_trgt", "cat_id_trgt"),
        "positive_history": ("item_id_pos", "cat_id_pos"),
        "negative_history": ("item_id_neg", "cat_id_neg"),
    }
    sources = {
        mapping: (Chunk("parquet", tuple(features), (f"{mapping}.parquet",)),)
        for mapping in ("train", "test")
    }
    return FeatureSpec(features, sources, channels, {})


def make_servable(
    directory: Path, model_type: str, history: int = HISTORY, **options: object
) -> Servable:
    """Export a model of random weights."""
    spec = published_spec(history)
    dataset = DatasetDirectory(directory, spec, to_merlin_schema(spec))
    tf.keras.utils.set_random_seed(1)
    model = build_model(model_type, dataset.schema, **options)
    for variable in model.trainable_variables:  # as if trained: scores that differ
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.1))
    return Servable.open(export_model(model, dataset, directory / "servable", checkpoint={}))


def make_event(candidates: int, history: int = HISTORY) -> EncodedEvent:
    """One user with a full history, and candidates."""
    chance = np.random.default_rng(candidates)

    def ids(name: str, count: int) -> np.ndarray:
        return chance.integers(1, SIZES[name] + 1, count)

    return EncodedEvent(
        {"user_id": ids("user_id", 1)},
        {f"{name}_trgt": ids(name, candidates) for name in ("item_id", "cat_id")},
        {f"{name}_pos": ids(name, history) for name in ("item_id", "cat_id")},
    )


def median_seconds(calls, seconds: float) -> list[float]:
    """Median time of each call; they take turns, so that both meet the same machine."""
    times = [[] for _ in calls]
    for call in calls:
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, own in zip(calls, times, strict=True):
            begin = time.perf_counter()
            call()
            own.append(time.perf_counter() - begin)
    return [statistics.median(own) for own in times]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement")
    parser.add_argument("--model_type", default="sim")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        scorer = Scorer(make_servable(Path(directory), arguments.model_type))
        print(f"{arguments.model_type}: candidates, ms, candidates/s (plain batch, user once)")
        for count in (1, 8, 100, 1000):
            event = make_event(count)

            def as_batch(event=event):
                return scorer.score_ids(plain_batch([event], scorer.columns))

            def user_once(event=event):
                return scorer.score_candidates(one_user_batch(event, scorer.columns))

            difference = np.abs(as_batch() - user_once()).max()
            slow, fast = median_seconds([as_batch, user_once], arguments.seconds)
            print(
                f"{count:>5}  {1e3 * slow:8.2f} ms {count / slow:>9,.0f}/s   {1e3 * fast:8.2f} ms "
                f"{count / fast:>9,.0f}/s   x {slow / fast:.2f}   largest difference "
                f"{difference:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
