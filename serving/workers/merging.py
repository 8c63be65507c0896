"""Requests that wait while the model works are merged into its next call."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..scoring.ids_request import IdsRequest, merge_requests
from ..scoring.scorer import ROWS_PER_CALL, Scorer
from ..scoring.signature_inputs import Scores

Answer = Callable[[Scores | Exception], None]


@dataclass(frozen=True)
class Waiting:
    """A request that was taken and not yet answered."""

    request: IdsRequest
    answer: Answer
    is_counted: bool = True


class MergingWorker:
    """Scores requests in a thread of its own; nothing waits for company, only for its turn.

    The inputs of the plain signature have no common first axis (values and offsets), so Triton's
    own dynamic batching, which glues requests along it, cannot be used for them.

    Args:
        scorer: The model.
        observe: Called after each call of the model, with the requests merged and the rows.
    """

    def __init__(
        self, scorer: Scorer, observe: Callable[[int, int], None] = lambda requests, rows: None
    ) -> None:
        """Start the thread."""
        self._scorer = scorer
        self._observe = observe
        self._queue: queue.Queue[Waiting | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="merging worker", daemon=True)
        self._thread.start()

    def submit(self, request: IdsRequest, answer: Answer, is_probe: bool = False) -> None:
        """Take a request; ``answer`` is called with its scores, or with what went wrong.

        A probe is not observed.
        """
        self._queue.put(Waiting(request, answer, not is_probe))

    def close(self) -> None:
        """Answer what was taken, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        held: Waiting | None = None
        while True:
            first = held or self._queue.get()
            if first is None:
                return
            group, held, is_last = self._gather(first)
            self._score(group)
            if is_last:
                return

    def _gather(self, first: Waiting) -> tuple[list[Waiting], Waiting | None, bool]:
        """Take what waits beside ``first``, as far as it goes into one call.

        Returns:
            The group, a request that was taken but has to wait for the next call, and whether
            the worker was told to end.
        """
        group, rows = [first], first.request.rows
        while not first.request.is_one_user:
            try:
                following = self._queue.get_nowait()
            except queue.Empty:
                break
            if following is None:
                return group, None, True
            rows += following.request.rows
            if following.request.is_one_user or rows > ROWS_PER_CALL:
                return group, following, False
            group.append(following)
        return group, None, False

    def _score(self, group: Sequence[Waiting]) -> None:
        requests = [waiting.request for waiting in group]
        counted = [waiting.request for waiting in group if waiting.is_counted]
        if counted:
            self._observe(len(counted), sum(request.rows for request in counted))
        try:
            parts = self._call(requests)
        except Exception as error:  # whatever TensorFlow has to say goes to whoever asked
            if len(group) == 1:
                group[0].answer(error)
                return
            for waiting in group:  # one of them is the reason: the others are answered
                self._score([waiting])
            return
        for waiting, scores in zip(group, parts, strict=True):
            waiting.answer(scores)

    def _call(self, requests: Sequence[IdsRequest]) -> list[Scores]:
        if requests[0].is_one_user:
            return [self._scorer.score_candidates(requests[0].tensors)]
        scores = self._scorer.score_ids(merge_requests(requests, self._scorer.columns))
        ends = np.cumsum([request.rows for request in requests])[:-1]
        return list(np.split(scores, ends))
