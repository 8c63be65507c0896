"""A servable's model, loaded: ids or encoded events in, click probabilities out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..foundation.batch_names import HISTORY_SUMMARY
from .encoder import EncodedEvent
from .servable import (
    ONE_USER_SIGNATURE,
    PLAIN_SIGNATURE,
    SCORE,
    SUMMARIZE_SIGNATURE,
    SUMMARIZED,
    Servable,
    ServedColumns,
    Tensors,
)
from .signatures import (
    ROWS_PER_CALL,
    Scores,
    candidate_parts,
    groups_of_rows,
    history_parts,
    history_rows,
    one_user_batch,
    plain_batch,
    row_parts,
)

ONE_USER_FROM = 8
"""Candidates of an event from which the user's part is computed once; below, a merged batch of
several events is faster than one call for each (``benchmarks/bench_candidates.py``)."""


class Signatures(NamedTuple):
    """The two ways to call a model."""

    columns: ServedColumns
    plain: Any
    one_user: Any


class Scorer:
    """The signatures of a servable's SavedModel.

    Args:
        servable: An opened servable; its files have been checked.
        one_user_from: Candidates from which an event is scored by itself; None for never.
    """

    def __init__(self, servable: Servable, one_user_from: int | None = ONE_USER_FROM) -> None:
        self.columns = servable.columns
        self.one_user_from = None if servable.takes_rows else one_user_from
        # The loaded object has to stay alive: the signatures hold its variables weakly.
        self._loaded = tf.saved_model.load(str(servable.model))
        found = self._loaded.signatures
        # Plain rows have no user, and every candidate is a row.
        one_user = PLAIN_SIGNATURE if servable.takes_rows else ONE_USER_SIGNATURE
        self._whole = Signatures(self.columns, found[PLAIN_SIGNATURE], found[one_user])
        if (summary := servable.summary) is not None:
            names = (name + SUMMARIZED for name in (PLAIN_SIGNATURE, one_user))
            columns = summary.columns(self.columns)
            self._summarized = Signatures(columns, *(found[name] for name in names))
            self._summarize = found[SUMMARIZE_SIGNATURE]

    def score_ids(self, tensors: Tensors) -> Scores:
        """Score rows: the inputs of the plain signature. Returns [rows]."""
        return _score_rows(self._whole, tensors)

    def score_candidates(self, tensors: Tensors) -> Scores:
        """Score candidates of one user: the inputs of that signature. Returns [candidates]."""
        return _score_candidates(self._whole, tensors)

    def score_events(self, events: Sequence[EncodedEvent]) -> list[Scores]:
        """Score events: those with many candidates one by one, all others merged into batches."""
        scores: list[Scores] = [np.zeros(0, np.float32)] * len(events)
        stored = [index for index, event in enumerate(events) if event.stored is not None]
        others = [index for index, event in enumerate(events) if event.stored is None]
        self._score_some(self._whole, [(index, events[index]) for index in others], scores)
        if stored:
            grown = self._with_summaries([events[index] for index in stored])
            self._score_some(self._summarized, [*zip(stored, grown, strict=True)], scores)
        return scores

    def _score_some(
        self,
        signatures: Signatures,
        events: Sequence[tuple[int, EncodedEvent]],
        scores: list[Scores],
    ) -> None:
        least, columns = self.one_user_from, signatures.columns
        few = []
        for index, event in events:
            if event.candidate_count and least is not None and event.candidate_count >= least:
                scores[index] = _score_candidates(signatures, one_user_batch(event, columns))
            elif event.candidate_count:
                few.append((index, event))
        for group in groups_of_rows(few, lambda one: one[1].candidate_count, ROWS_PER_CALL):
            rows = [event for _, event in group]
            together = _score_rows(signatures, plain_batch(rows, columns))
            ends = np.cumsum([event.candidate_count for event in rows])[:-1]
            for (index, _), part in zip(group, np.split(together, ends), strict=True):
                scores[index] = part

    def _with_summaries(self, events: Sequence[EncodedEvent]) -> Iterator[EncodedEvent]:
        """Add what has come since to what is kept of whole histories."""
        rows, starts = history_rows([event.since for event in events], self.columns)
        parts = history_parts(rows, self.columns)
        found = [call_signature(self._summarize, part, HISTORY_SUMMARY) for part in parts]
        for event, added in zip(
            events, np.add.reduceat(np.concatenate(found), starts), strict=True
        ):
            assert event.stored is not None
            summary = event.stored.so_far + added
            event.stored.keep(summary)
            yield replace(event, users={**event.users, HISTORY_SUMMARY: summary[np.newaxis]})


def _score_rows(signatures: Signatures, tensors: Tensors) -> Scores:
    return _run(signatures.plain, row_parts(tensors, signatures.columns, ROWS_PER_CALL))


def _score_candidates(signatures: Signatures, tensors: Tensors) -> Scores:
    # One candidate beside its user is a row as well, and nothing would be saved.
    if len(tensors[signatures.columns.targets[0].name]) == 1:
        return _score_rows(signatures, tensors)
    return _run(signatures.one_user, candidate_parts(tensors, signatures.columns, ROWS_PER_CALL))


def _run(signature: Any, parts: Iterable[Tensors]) -> Scores:
    return np.concatenate([call_signature(signature, part, SCORE)[:, 0] for part in parts])


def call_signature(signature: Any, tensors: Tensors, output: str) -> npt.NDArray[np.float32]:
    """Call a signature, and return one of its outputs."""
    with tf.device("CPU:0"):  # without a device, TensorFlow takes 12 us to find one
        inputs = {name: tf.constant(value) for name, value in tensors.items()}
    outputs = signature(**inputs)
    found: npt.NDArray[np.float32] = outputs[output].numpy()  # a copy
    if sys.version_info >= (3, 11):
        for tensor in (*inputs.values(), *outputs.values()):
            # TensorFlow forgets to: 48 bytes each, for ever (its issue 62551). A busy server lost
            # more than 10 GB a day.
            del tensor.__dict__
    return found
