"""What every rank of a test under horovodrun does; the first writes what came out.

    horovodrun -np N python rank_worker.py JOB

JOB is JSON: the ``dataset``; the ``folder`` to work in; the folder where one rank did the same,
``alone``; whether it ``resumes`` the case that one rank began, or trains it; which cases of
``spread_worker`` to train; the ``commands`` to run.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import spread_worker
import tensorflow as tf

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

from merlin_sim.foundation.exceptions import MerlinSimError  # noqa: E402
from merlin_sim.parallel.ranks import collectives  # noqa: E402
from merlin_sim.parallel.ranks.collectives import average_gradients  # noqa: E402
from merlin_sim.parallel.steps.loss_scale import LossScale  # noqa: E402
from merlin_sim.parallel.steps.optimizers import make_optimizer  # noqa: E402
from merlin_sim.parallel.steps.train_step import TrainStep  # noqa: E402
from merlin_sim.scripts.main import cli  # noqa: E402
from merlin_sim.training.evaluation.evaluate import HeldOutMetrics  # noqa: E402
from merlin_sim.training.evaluation.metrics import AUC  # noqa: E402
from merlin_sim.training.runs.run import run  # noqa: E402
from merlin_sim.training.runs.run_config import RunConfig  # noqa: E402

DIN = {"embedding_dim": 4, "stage_two_mlp_dims": (8, 4)}
STEPS = 300
"""So many steps tell whether chance has a part in one of a hundred."""


def case_config(dataset: Path, results: Path, **more) -> RunConfig:
    """Global batches of 96 leave a last one of 12 rows: four steps an epoch."""
    values = {
        "model_type": "din",
        "model_options": DIN,
        "optimizer": "adam",
        "gradient_exchange": "dense",
        "epochs": 2,
        "global_batch_size": 96,
        "seed": 11,
        "affinity": "disabled",
        "save_checkpoint_path": results / "saved",
        "checkpoint_every": 3,
        "keep_checkpoints": 9,
    }
    return RunConfig(dataset_dir=dataset, results_dir=results, **{**values, **more})


class Recorder:
    """Notes every row that a run counts in its last epoch: [label, score] or [label, score, user].

    The rows of all ranks are in the order in which one rank has them: in training those of a batch,
    in evaluation, where each rank has rows of its own, all.
    """

    def __init__(self):
        self.train, self.test, self.last = [], [], None

    def run(self, config: RunConfig) -> dict:
        count, update, result = AUC.update_state, HeldOutMetrics.update, HeldOutMetrics.result

        def note(labels, scores, counts):
            kept = counts.numpy().reshape(-1) != 0
            self.train.append([x.numpy().reshape(-1)[kept].tolist() for x in (labels, scores)])

        def noting_count(metric, y_true, y_pred, sample_weight=None):
            if sample_weight is None:  # an evaluation's
                return count(metric, y_true, y_pred)
            with tf.control_dependencies(
                [tf.py_function(note, [y_true, y_pred, sample_weight], [])]
            ):
                return count(metric, y_true, y_pred, sample_weight)

        def noting_update(metrics, labels, scores, columns):
            update(metrics, labels, scores, columns)
            self.test.append([x.tolist() for x in (labels, scores, columns[metrics.user])])

        def noting_result(*arguments, **options):
            self.last = {"train": self.train, "test": self.test}
            self.train, self.test = [], []
            return result(*arguments, **options)

        with (
            mock.patch.object(AUC, "update_state", noting_count),
            mock.patch.object(HeldOutMetrics, "update", noting_update),
            mock.patch.object(HeldOutMetrics, "result", noting_result),
        ):
            return run(config)

    def rows(self, ranks) -> dict[str, list[list]]:
        def joined(batches):
            return [sum(column, []) for column in zip(*batches, strict=True)]

        everyone = collectives.gather_objects(self.last, ranks)
        train = zip(*(one["train"] for one in everyone), strict=True)
        test = [batch for one in everyone for batch in one["test"]]
        return {"train": [joined(batches) for batches in train], "test": [joined(test)]}


def run_case(config: RunConfig, ranks) -> dict:
    recorder = Recorder()
    return {"result": recorder.run(config), "rows": recorder.rows(ranks)}


def resume(dataset: Path, directory: Path, saved: Path, ranks) -> dict:
    """Go on with what a run on another number of ranks saved."""
    exchange = {"gradient_exchange": "sparse"}  # the run before gathered whole tables
    config = case_config(dataset, directory / "resumed", load_checkpoint_path=saved, **exchange)
    return run_case(config, ranks)


class OverflowsOnLastRank:
    """One weight whose gradient is 1, or on the last rank infinite while ``broken`` is set."""

    def __init__(self, ranks):
        self.weight = tf.Variable(1.0)
        self.trainable_variables = [self.weight]
        self.broken = tf.Variable(0.0)
        self.last = float(ranks.rank == ranks.size - 1)

    def compute_step(self, columns, labels, sample_weight, training):
        huge = 1.0 + self.broken * self.last * 1e38
        loss = self.weight * huge * huge
        return (loss, loss, tf.constant(0.0)), tf.zeros_like(labels)


def overflow(ranks) -> dict:
    model = OverflowsOnLastRank(ranks)
    scale = LossScale(active=True)
    step = TrainStep(model, make_optimizer("sgd", [model.weight], 0.25), scale, ranks)
    train, seen = tf.function(step.run, autograph=False), []
    for broken in (0.0, 1.0, 0.0):
        model.broken.assign(broken)
        stop = tf.constant(bool(broken) and ranks.rank == 1)
        result = train({}, tf.zeros([2]), stop, tf.constant(1.0))
        seen.append(
            [
                float(model.weight.numpy()),
                float(scale.scale.numpy()),
                bool(result.finite),
                bool(result.stopped),
            ]
        )
    return {"overflow": collectives.gather_objects(seen, ranks)}


def averages(ranks) -> dict:
    """Average known gradients, as rows and as tables, and see whether all ranks agree."""
    rows = tf.constant([ranks.rank, 2, 2])
    values = tf.fill([3, 2], float(ranks.rank + 1))
    slices = tf.IndexedSlices(values, rows, tf.constant([6, 2]))
    dense = tf.fill([3], float(ranks.rank))
    found = {}
    for name, options in {
        "sparse": {},
        "dense": {"dense_tables": True},
        "fp16": {"fp16_compression": True},
    }.items():
        (table, vector), extra = average_gradients(
            [slices, dense], tf.constant([float(ranks.rank)]), ranks, **options
        )
        found[name] = [
            tf.convert_to_tensor(table).numpy().tolist(),
            vector.numpy().tolist(),
            extra.numpy().tolist(),
            isinstance(table, tf.IndexedSlices),
        ]
    everywhere = collectives.gather_objects(found, ranks)
    assert all(other == found for other in everywhere)
    return found


def averages_of_same(ranks) -> int:
    """Count how many different bits many averages of the same gradients have."""
    random = np.random.default_rng(ranks.rank)
    sizes = ([37], [1000, 3], [11], [50], [5])
    given = [tf.constant(random.normal(size=size), tf.float32) for size in sizes]

    @tf.function(autograph=False)
    def averaged(gradients, extra):
        found, reported = average_gradients(list(gradients), extra, ranks)
        return [*found, reported]

    steps = (
        [tensor.numpy().tobytes() for tensor in averaged(given[:-1], given[-1])]
        for _ in range(STEPS)
    )
    return len({b"".join(tensors) for tensors in steps})


def metrics(ranks) -> dict:
    """Measure the same predictions, in parts of unequal length, of which one has none."""
    random = np.random.default_rng(8)
    labels = random.integers(0, 2, 4001)
    scores = random.uniform(0, 1, 4001).astype(np.float32) ** (2 - labels)
    users = np.sort(random.integers(0, 400, 4001))
    cuts = [0, *([0] if ranks.size > 2 else []), *range(1001, 4001, 1000)][: ranks.size]
    begin, end = [*cuts, 4001][ranks.rank : ranks.rank + 2]
    found = HeldOutMetrics("user", True, ())
    for part in np.array_split(np.arange(begin, end), 3):
        found.update(labels[part], scores[part], {"user": users[part]})
    return found.result(0, ranks, None, False)[0].to_dict()


def run_command(words: list[str]) -> str | None:
    """Run a command of the command line; gives why it was refused, None where it ended well."""
    with mock.patch.dict(os.environ):  # a command may set what TensorFlow reads when it starts
        try:
            cli.main(words, standalone_mode=False)
        except MerlinSimError as error:
            return str(error)
    return None


def main() -> None:
    sys.path.append(str(Path(__file__).parents[1] / "models"))  # whose families commands name
    job = json.loads(sys.argv[1])
    dataset, folder, alone = (Path(job[name]) for name in ("dataset", "folder", "alone"))
    ranks = collectives.start()
    results = {"averages": averages(ranks), **overflow(ranks)}
    results["averages of the same"] = averages_of_same(ranks)
    if job["resumes"]:
        begun = alone / "case/saved/step-0000000003"
        results["resumed"] = resume(dataset, folder, begun, ranks)
    else:
        results["case"] = run_case(case_config(dataset, folder / "case"), ranks)
    results["metrics"] = metrics(ranks)
    counts = collectives.sum_counts(np.array([ranks.rank + 1]), ranks)
    results["sum"] = counts.tolist()
    results["spread"] = spread_worker.train_all(ranks, folder, job["spread"])
    ends = {name: run_command(words) for name, words in job["commands"].items()}
    results["ends"] = collectives.gather_objects(ends, ranks)
    if ranks.is_first:
        (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
