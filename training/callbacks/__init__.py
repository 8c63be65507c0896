"""Callbacks that ``merlin-sim train`` adds to Keras's ``fit``, for a notebook too.

    model.compile("adam", metrics=[ms.metrics.AUC()])
    model.fit(dataset, batch_size=4096, epochs=3, callbacks=[
        ms.callbacks.Throughput(),
        ms.callbacks.JSONLogger("results"),
        ms.callbacks.StopOnSignal(),
        ms.callbacks.Evaluation(dataset, batch_size=4096),
        ms.callbacks.Checkpoint("checkpoints", resume=True),
    ])

They read ``model.progress``: they are for ``fit`` on an opened dataset directory, or, but for
``Checkpoint``, on a loader of this package. Steps and epochs end for them in the order of the list.
Callbacks of one's own stand behind ``Evaluation``, whose values are in their logs, and before
``Checkpoint``, which saves what they keep.
"""

from .callback import Callback
from .checkpoint import Checkpoint
from .evaluation import Evaluation
from .json_logger import JSONLogger
from .stops import Heartbeat, MaxSteps, StopOnNaN, StopOnSignal
from .throughput import Benchmark, Throughput

__all__ = [
    "Benchmark",
    "Callback",
    "Checkpoint",
    "Evaluation",
    "Heartbeat",
    "JSONLogger",
    "MaxSteps",
    "StopOnNaN",
    "StopOnSignal",
    "Throughput",
]
