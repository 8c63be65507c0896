"""The model `ids`: the inputs of the SavedModel's signature in, scores out.

Those inputs have no common first axis (values and offsets), so Triton's own dynamic batching, which
puts requests together along it, cannot be used: what comes while the model works is merged here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from prometheus_client import Counter

from ...foundation.requests import RequestError
from ..encoder import open_encoder
from ..scorer import Scorer
from ..servable import SCORE, Servable
from ..settings import ModelSettings
from ..signatures import (
    ROWS_PER_CALL,
    IdsRequest,
    Scores,
    check_request,
    groups_of_rows,
    merge_requests,
    plain_batch,
)
from ..texts import example_event
from .worker import Reply, TritonRequest, answer_apart

CALLS = Counter("merlin_sim_ids_model_calls", "Calls of the model `ids`", ("version",))
REQUESTS = Counter("merlin_sim_ids_requests", "Requests in these calls", ("version",))
ROWS = Counter("merlin_sim_ids_rows", "Rows in these calls", ("version",))


class SoundRequest(NamedTuple):
    """A request that the model can answer, by its number among those that came together."""

    number: int
    request: IdsRequest
    is_probe: bool


class IdsModel:
    """Checks each request by itself; those that are sound are merged and scored."""

    merges = True

    def __init__(self, settings: ModelSettings) -> None:
        self.limits = settings.limits
        self._servable = Servable.open(settings.servable)
        self.scorer = Scorer(self._servable)
        self._version = str(settings.number)

    def probe(self) -> dict[str, npt.NDArray[Any]]:
        """See WorkerModel."""
        encoder = open_encoder(self._servable, self.limits)
        event = encoder.encode(encoder.parse(example_event(encoder)))
        return plain_batch([event], self.scorer.columns)

    def take(self, requests: Sequence[TritonRequest], reply: Reply) -> None:
        """Answer requests, as many as go together in one call of the model."""
        sound = []
        for number, request in enumerate(requests):
            try:
                checked = check_request(request.tensors, self.scorer.columns, self.limits)
            except RequestError as error:
                reply(number, error)
                continue
            sound.append(SoundRequest(number, checked, request.is_probe))
        for group in merged_calls(sound):
            self._count([one.request for one in group if not one.is_probe])
            found = answer_apart(
                partial(score_requests, self.scorer), [one.request for one in group]
            )
            for one, result in zip(group, found, strict=True):
                if isinstance(result, Exception):
                    reply(one.number, result)
                else:
                    reply(one.number, {SCORE: result[:, None]})

    def close(self) -> None:
        """See WorkerModel: nothing is kept."""

    def _count(self, requests: Sequence[IdsRequest]) -> None:
        if requests:
            rows = sum(request.rows for request in requests)
            for counter, count in ((CALLS, 1), (REQUESTS, len(requests)), (ROWS, rows)):
                counter.labels(self._version).inc(count)


def merged_calls(requests: Sequence[SoundRequest]) -> Iterator[list[SoundRequest]]:
    """Deal requests out, in order, into calls of the model; one user with many rows is alone."""

    def rows_of(one: SoundRequest) -> float:
        return np.inf if one.request.is_one_user else one.request.rows

    return groups_of_rows(requests, rows_of, ROWS_PER_CALL)


def score_requests(scorer: Scorer, requests: Sequence[IdsRequest]) -> list[Scores]:
    """Score requests in one call."""
    if requests[0].is_one_user:
        return [scorer.score_candidates(requests[0].tensors)]
    scores = scorer.score_ids(merge_requests(requests, scorer.columns))
    ends = np.cumsum([request.rows for request in requests])[:-1]
    return list(np.split(scores, ends))
