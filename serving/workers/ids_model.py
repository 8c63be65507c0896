"""The model `ids`: the inputs of the SavedModel's signature in, scores out.

Requests that wait while the model works are merged into its next call.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client import Counter

from ..encoder import open_encoder
from ..limits import RequestError
from ..scorer import Scorer
from ..servable import SCORE, Servable
from ..settings import ModelSettings
from ..signatures import (
    ROWS_PER_CALL,
    IdsRequest,
    Scores,
    check_request,
    merge_requests,
    plain_batch,
)
from ..texts import example_event
from .worker import Reply, Request

CALLS = Counter("merlin_sim_ids_model_calls", "Calls of the model `ids`", ("version",))
REQUESTS = Counter("merlin_sim_ids_requests", "Requests in these calls", ("version",))
ROWS = Counter("merlin_sim_ids_rows", "Rows in these calls", ("version",))


class IdsModel:
    """Checks each request by itself; those that are sound are merged and scored."""

    def __init__(self, settings: ModelSettings) -> None:
        """Load the servable."""
        self.limits = settings.limits
        self._servable = Servable.open(settings.servable)
        self.scorer = Scorer(self._servable)
        self._version = str(settings.number)
        self.worker = MergingWorker(self.scorer, self._observe)

    def probe(self) -> dict[str, npt.NDArray[Any]]:
        """See WorkerModel."""
        encoder = open_encoder(self._servable, self.limits)
        event = encoder.encode(encoder.parse(example_event(encoder)))
        return plain_batch([event], self.scorer.columns)

    def take(self, requests: Sequence[Request], reply: Reply) -> None:
        """Take requests; they are answered when they are scored."""
        for place, request in enumerate(requests):
            try:
                checked = check_request(request.tensors, self.scorer.columns, self.limits)
            except RequestError as error:
                reply(place, error)
                continue
            self.worker.submit(checked, functools.partial(_answer, reply, place), request.is_probe)

    def close(self) -> None:
        """Answer what was taken."""
        self.worker.close()

    def _observe(self, requests: int, rows: int) -> None:
        for counter, count in ((CALLS, 1), (REQUESTS, requests), (ROWS, rows)):
            counter.labels(self._version).inc(count)


def _answer(reply: Reply, place: int, result: Scores | Exception) -> None:
    reply(place, result if isinstance(result, Exception) else {SCORE: result[:, None]})


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
