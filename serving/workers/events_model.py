"""The model ``events``: raw events in, scores out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..encoder import open_encoder
from ..histories.open_store import open_store
from ..request_log import RequestLog
from ..scorer import Scorer
from ..settings import ModelSettings
from ..signatures import Scores
from ..texts import event_text, example_event, read_events, refuse_first
from ..versions import LoadedVersion, VersionedEvent, Versions, user_of_events
from .metrics import CountedReads, count_events
from .protocol import EVENT, SCORES, UNSEEN_CANDIDATES, UNSEEN_USER, VERSION
from .worker import Outputs, Reply, TritonRequest, answer_apart

NO_CANDIDATE = -1.0
"""Fills the rows of events with fewer candidates than others of their request."""


class EventsModel:
    """Scores the requests that Triton's dynamic batching hands over together."""

    merges = False

    def __init__(self, settings: ModelSettings) -> None:
        """Load the servable, and the canary's where there is one."""
        self.limits = settings.limits
        served = settings.open()
        given = settings.histories
        self._store = None if given is None else open_store(given, later=True)
        histories = None if self._store is None else CountedReads(self._store, "events")
        loaded = [
            LoadedVersion(number, open_encoder(servable, self.limits, histories), Scorer(servable))
            for number, servable in served.items()
        ]
        self.versions = Versions(loaded[0])
        if settings.canary is not None:
            user = user_of_events(served[settings.number])
            self.versions = Versions(loaded[0], loaded[1], settings.canary.share, user)
        self.logs: dict[int, RequestLog] = {}
        if settings.log.log_requests is not None:
            self.logs = {n: RequestLog(settings.log, n, s.ids) for n, s in served.items()}

    def probe(self) -> dict[str, npt.NDArray[Any]]:
        """See WorkerModel; a canary is prepared by the same event."""
        event = example_event(self.versions.current.encoder)
        if (canary := self.versions.canary) is not None:
            canary.scorer.score_events([canary.encoder.encode(canary.encoder.parse(event))])
        return {EVENT: np.array([[event_text(event)]], object)}

    def take(self, requests: Sequence[TritonRequest], reply: Reply) -> None:
        """Answer requests, each of one event or more; a bad event refuses its request only."""
        taken: list[tuple[int, list[VersionedEvent]]] = []
        texts = [request.tensors[EVENT] for request in requests]
        for index, found in enumerate(read_events(texts, self.versions.encode_all)):
            try:
                events = refuse_first(found)
                longest = max((one.event.candidate_count for one in events), default=0)
                self.limits.check_answer(len(events), longest)
                taken.append((index, events))
            except Exception as error:  # of this request alone
                reply(index, error)
        counted = [not requests[index].is_probe for index, events in taken for _ in events]
        scores = self._score([one for _, events in taken for one in events], counted)
        for index, events in taken:
            found_scores, scores = scores[: len(events)], scores[len(events) :]
            try:
                reply(index, _answer(requests[index], events, refuse_first(found_scores)))
            except Exception as error:
                reply(index, error)

    def close(self) -> None:
        """Report what was counted, and close what was kept."""
        for log in self.logs.values():
            log.close()
        if self._store is not None:
            self._store.close()

    def _score(
        self, asked: Sequence[VersionedEvent], counted: Sequence[bool]
    ) -> list[Scores | Exception]:
        """Score events, each by its version; what fails has its error instead."""
        scores: list[Scores | Exception] = [np.zeros(0, np.float32)] * len(asked)
        for version in self.versions.all:
            indices = [index for index, one in enumerate(asked) if one.version is version]
            if not indices:
                continue
            events = [asked[index].event for index in indices]
            begin = time.perf_counter()
            found = answer_apart(version.scorer.score_events, events)
            for index, one in zip(indices, found, strict=True):
                scores[index] = one
            seconds = time.perf_counter() - begin
            done = [
                (asked[index].event, one)
                for index in indices
                if counted[index] and not isinstance(one := scores[index], Exception)
            ]
            if done:
                scored, of_scored = [event for event, _ in done], [one for _, one in done]
                count_events(version.number, scored, of_scored, seconds)
                if version.number in self.logs:
                    self.logs[version.number].add(scored, of_scored)
        return scores


def _answer(
    request: TritonRequest, asked: Sequence[VersionedEvent], scores: Sequence[Scores]
) -> Outputs:
    events = [event for _, event in asked]
    outputs: dict[str, Callable[[], npt.NDArray[Any]]] = {
        SCORES: lambda: stack(scores, NO_CANDIDATE),
        UNSEEN_USER: lambda: np.array([[event.unseen_user] for event in events], bool),
        UNSEEN_CANDIDATES: lambda: stack([event.unseen_candidates for event in events], False),
        VERSION: lambda: np.array([[version.number] for version, _ in asked], np.int64),
    }
    return {name: make() for name, make in outputs.items() if name in request.outputs}


def stack(lists: Sequence[npt.NDArray[Any]], filler: float | bool) -> npt.NDArray[Any]:
    """One list of each event, as rows of one length: [events, candidates]."""
    longest = max((len(row) for row in lists), default=0)
    rows = np.full((len(lists), longest), filler, lists[0].dtype if lists else np.float32)
    for index, row in enumerate(lists):
        rows[index, : len(row)] = row
    return rows
