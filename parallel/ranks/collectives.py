"""Horovod, all of it: with one process the same code runs and does nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ...foundation.exceptions import MerlinSimError
from ...foundation.ranks import Ranks, launched_size
from . import own_gpu

try:
    import horovod.tensorflow as hvd
except ImportError:
    hvd = None

Result = TypeVar("Result")
Gradient = Any
"""A ``tf.Tensor``, or of a table a ``tf.IndexedSlices``."""


def start() -> Ranks:
    """Join the run; refuse processes that Horovod cannot join, and more than there are GPUs."""
    launched = launched_size()
    if hvd is None:
        if launched > 1:
            raise MerlinSimError(
                f"{launched} processes were started, but Horovod is not installed: "
                "`HOROVOD=1 make setup`."
            )
        return Ranks()
    hvd.init()
    ranks = joined()
    if launched > 1 and ranks.size == 1:
        raise MerlinSimError(
            f"{launched} processes were started that Horovod cannot join: it was built without "
            "MPI. Start them with horovodrun, or build it with HOROVOD_WITH_MPI=1 make setup."
        )
    return ranks


def _check_gpu(ranks: Ranks) -> None:
    """Refuse several ranks on one GPU; which a rank sees was settled before TensorFlow came.

    Nothing of a device can be chosen here any more: importing Merlin has made them.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus or ranks.local_size == 1 or own_gpu.is_taken():
        return
    if ranks.local_size > len(gpus):
        raise MerlinSimError(
            f"{ranks.local_size} ranks were started on a machine with {len(gpus)} GPUs: start as "
            "many as there are, or hide the GPUs with CUDA_VISIBLE_DEVICES= to use the CPU."
        )
    raise MerlinSimError(
        f"each rank should see one GPU. Received: {len(gpus)} of them. `merlin-sim train` hides the"
        " others; a program of your own sets CUDA_VISIBLE_DEVICES before it imports TensorFlow."
    )


def joined() -> Ranks:
    """Return which rank this process is of the run that it has joined, or that it is alone.

    Several ranks on one GPU are refused.
    """
    if hvd is None or not hvd.is_initialized():
        return Ranks()
    ranks = Ranks(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
    _check_gpu(ranks)
    return ranks


def average_gradients(
    gradients: list[Gradient],
    extra: tf.Tensor,
    ranks: Ranks,
    fp16_compression: bool = False,
    dense_tables: bool = False,
    own: frozenset[int] = frozenset(),
) -> tuple[list[Gradient], tf.Tensor]:
    """Average the gradients of all ranks, once.

    Dense ones and ``extra`` go in one fused reduction, the same from step to step. Of a table, the
    rows that the batches name travel, and never the whole table, unless ``dense_tables`` asks for
    it. What this rank alone has was summed over all ranks when it came here: it is divided, and
    does not travel.

    Args:
        gradients: this rank's, in the same order on every rank.
        extra: a small float32 vector that is averaged along.
        ranks: the run.
        fp16_compression: send float16.
        dense_tables: turn gradients of tables into whole tables first.
        own: indices of the gradients of what is on no other rank.
    """
    if ranks.size == 1:
        return gradients, extra
    averaged: list[Gradient] = [None] * len(gradients)
    for i in own:
        averaged[i] = on_values(gradients[i], lambda values: values / ranks.size)
    compression = hvd.Compression.fp16 if fp16_compression else hvd.Compression.none
    moved = [i for i in range(len(gradients)) if i not in own]
    sent = {i: _densified(gradients[i]) if dense_tables else gradients[i] for i in moved}
    dense = [i for i, g in sent.items() if not isinstance(g, tf.IndexedSlices)]
    if fp16_compression:  # what differs in its type is never fused with the others
        extra = hvd.allreduce(extra, op=hvd.Average, name="extra")
        reduced = hvd.grouped_allreduce(
            [sent[i] for i in dense], op=hvd.Average, compression=compression
        )
    else:
        # Beside the group, it would be fused with it or not, as time has it. From three ranks on
        # the order of a sum depends on the position in what is fused: bits would differ by chance.
        *reduced, extra = hvd.grouped_allreduce([*(sent[i] for i in dense), extra], op=hvd.Average)
    for i, gradient in zip(dense, reduced, strict=True):
        averaged[i] = gradient
    for i, gradient in sent.items():
        if isinstance(gradient, tf.IndexedSlices):
            averaged[i] = _gather_rows(gradient, f"table_{i}", ranks, compression)
    return averaged, extra


def exchange(
    values: tf.Tensor, sent: tf.Tensor, received: tf.Tensor, name: str, ranks: Ranks
) -> tf.Tensor:
    """Send each rank its rows of a tensor and return the rows that all send this one.

    The gradient goes the same way back. Both have names of their own, the same on every rank, as
    Horovod pairs by name what ranks send.

    Args:
        values: [rows, ...], those for the first rank first.
        sent: [ranks], int32: how many rows go to each.
        received: [ranks], int32: how many come from each.
        name: unlike that of any other exchange of the step.
        ranks: the run.
    """
    if ranks.size == 1:
        return values

    @tf.custom_gradient
    def go(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def back(upstream: tf.Tensor) -> tf.Tensor:
            return hvd.alltoall(upstream, received, name=f"{name}_back", ignore_name_scope=True)[0]

        there, _ = hvd.alltoall(values, sent, name=name, ignore_name_scope=True)
        return tf.ensure_shape(there, [None, *values.shape[1:]]), back

    return go(values)


def exchange_counts(counts: tf.Tensor, name: str, ranks: Ranks) -> tf.Tensor:
    """Send each rank its row of a matrix [ranks, n]; return the rows sent to this one."""
    if ranks.size == 1:
        return counts
    ones = tf.ones([ranks.size], tf.int32)
    received, _ = hvd.alltoall(counts, ones, name=name, ignore_name_scope=True)
    return tf.ensure_shape(received, counts.shape)


def average(value: tf.Tensor, name: str, ranks: Ranks) -> tf.Tensor:
    """Average a tensor over all ranks, within a graph."""
    return value if ranks.size == 1 else hvd.allreduce(value, op=hvd.Average, name=name)


def _gather_rows(
    slices: tf.IndexedSlices, name: str, ranks: Ranks, compression: Any
) -> tf.IndexedSlices:
    values, context = compression.compress(slices.values)
    values = hvd.allgather(values, name=f"{name}_values")
    values = compression.decompress(values, context)
    indices = hvd.allgather(slices.indices, name=f"{name}_rows")
    return tf.IndexedSlices(values / ranks.size, indices, slices.dense_shape)


def on_values(gradient: Gradient, change: Callable[[tf.Tensor], tf.Tensor]) -> Gradient:
    """Change the numbers of a gradient, which may be rows of a table."""
    if isinstance(gradient, tf.IndexedSlices):
        values = change(gradient.values)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return change(gradient)


def _densified(gradient: Gradient) -> tf.Tensor:
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    shape = tf.cast(gradient.dense_shape, gradient.indices.dtype)
    return tf.scatter_nd(gradient.indices[:, tf.newaxis], gradient.values, shape)


def broadcast(variables: list[tf.Variable], ranks: Ranks) -> None:
    """Give every rank the values of rank 0."""
    if ranks.size > 1:
        hvd.broadcast_variables(variables, root_rank=0)


def broadcast_object(value: Any, ranks: Ranks) -> Any:
    """Give every rank the object of rank 0."""
    return hvd.broadcast_object(value, root_rank=0) if ranks.size > 1 else value


def on_first_rank(work: Callable[[], Result], ranks: Ranks) -> Result | None:
    """Let rank 0 do ``work``, return what it gives there and None elsewhere; fail together."""
    return on_every_rank(lambda: work() if ranks.is_first else None, ranks)


def on_every_rank(work: Callable[[], Result], ranks: Ranks) -> Result:
    """Let every rank do ``work``; where it fails on one, all raise the error of the first."""
    result: Any = None
    failed: MerlinSimError | None = None
    try:
        result = work()
    except MerlinSimError as error:
        failed = error
    failures = gather_objects(failed, ranks)
    for failure in failures:
        if failure is not None:
            raise failure
    return result  # type: ignore[no-any-return]


def gather_objects(value: Any, ranks: Ranks) -> list[Any]:
    """Give every rank the objects of all ranks, in their order."""
    return list(hvd.allgather_object(value)) if ranks.size > 1 else [value]


def sum_counts(counts: npt.NDArray[np.int64], ranks: Ranks) -> npt.NDArray[np.int64]:
    """Add up whole numbers over all ranks."""
    if ranks.size == 1:
        return counts
    total: npt.NDArray[np.int64] = hvd.allreduce(tf.constant(counts), op=hvd.Sum).numpy()
    return total


def send_rows(
    values: npt.NDArray[Any], receivers: npt.NDArray[np.int64], ranks: Ranks
) -> npt.NDArray[Any]:
    """Send each row to a rank, and return those that come here, in the order of their senders.

    Args:
        values: [rows, ...], of this rank.
        receivers: [rows], the rank that is to have each.
        ranks: the run.
    """
    if ranks.size == 1:
        return values
    order = np.argsort(receivers, kind="stable")
    sent = np.bincount(receivers, minlength=ranks.size).astype(np.int32)
    received: npt.NDArray[Any] = hvd.alltoall(tf.constant(values[order]), sent)[0].numpy()
    return received


def any_rank(flag: bool, ranks: Ranks) -> bool:
    """Return whether ``flag`` is set on any rank; all ranks must ask."""
    return bool(sum_counts(np.array([int(flag)]), ranks)[0])


def is_lost_connection(error: Exception) -> bool:
    """Return whether a collective operation failed because another rank is gone."""
    text = str(error)
    return "HorovodInternalError" in type(error).__name__ or any(
        sign in text for sign in ("Horovod", "Gloo", "gloo", "Connection closed by peer")
    )
