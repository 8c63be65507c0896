"""The model ``events`` inside Triton: raw events in, scores out. Runs in the Python backend."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....histories.store import Reading
from ...events.row_encoder import open_encoder
from ...limits import Limits
from ...requests.request_log import RequestLog
from ...scoring.scorer import Scorer
from ...scoring.signature_inputs import Scores
from ...scoring.versions import Asked, Version, Versions, user_of_events
from ...servables.servable import Servable
from .counters import Counters
from .event_texts import (
    EVENT,
    SCORES,
    UNSEEN_CANDIDATES,
    UNSEEN_USER,
    VERSION,
    read_events,
)
from .model_settings import read_canary, read_histories, read_log, read_settings
from .reads import DESCRIPTIONS as OF_READS
from .reads import CountedReads
from .responses import answer, read_tensors, refuse
from .tally import DESCRIPTIONS, Tally

NOT_SCORED = np.zeros(0, np.float32)
NO_CANDIDATE = -1.0
"""Fills the rows of events with fewer candidates than others of their request."""


class TritonPythonModel:
    """Scores the requests that Triton's dynamic batching hands over together."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the servable that config.pbtxt names, and the canary's where it names one."""
        servable, limits = read_settings(args)
        self.limits = limits
        served = {int(args["model_version"]): servable}
        self.tally = Tally(Counters({**DESCRIPTIONS, **OF_READS}).increment)
        store = read_histories(args)
        histories = None if store is None else CountedReads(store, self.tally)
        current = _load(int(args["model_version"]), servable, limits, histories)
        self.versions = Versions(current)
        if (found := read_canary(args)) is not None:
            canary, other = found
            served[canary.number] = other
            loaded = _load(canary.number, other, limits, histories)
            self.versions = Versions(current, loaded, canary.share, user_of_events(servable))
        kept = read_log(args)
        self.logs = (
            {} if kept is None else {n: RequestLog(kept, n, s.ids) for n, s in served.items()}
        )

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer requests, each of one event or more; a bad event refuses its request only."""
        responses: list[Any] = []
        encoded: list[list[Asked]] = []
        for request in requests:
            try:
                texts = read_tensors(request)[EVENT]
                asked = read_events(texts, self.versions.encode)
                longest = max((one.event.candidates for one in asked), default=0)
                self.limits.check_answer(len(asked), longest)
                encoded.append(asked)
                responses.append(None)
            except Exception as error:  # a fault of one request must not end those beside it
                encoded.append([])
                responses.append(refuse(error))
        scores = self._score([one for asked in encoded for one in asked])
        answers = []
        for request, response, asked in zip(requests, responses, encoded, strict=True):
            found, scores = scores[: len(asked)], scores[len(asked) :]
            answers.append(response or _answer(request, asked, found))
        return answers

    def finalize(self) -> None:
        """Tell what was counted, and close what was kept."""
        self.tally.close()
        for log in self.logs.values():
            log.close()

    def _score(self, asked: Sequence[Asked]) -> list[Scores | Exception]:
        """Score events, each by its version; give what went wrong with it in its place."""
        scores: list[Scores | Exception] = [NOT_SCORED] * len(asked)
        for version in self.versions.all:
            places = [place for place, one in enumerate(asked) if one.version is version]
            if not places:
                continue
            events = [asked[place].event for place in places]
            begin = time.perf_counter()
            try:
                found = version.scorer.score_events(events)
            except Exception as error:  # whatever TensorFlow has to say goes to whoever asked
                for place in places:
                    scores[place] = error
                continue
            self.tally.add(version.number, events, found, time.perf_counter() - begin)
            if version.number in self.logs:
                self.logs[version.number].add(events, found)
            for place, one in zip(places, found, strict=True):
                scores[place] = one
        return scores


def _load(number: int, servable: Servable, limits: Limits, histories: Reading | None) -> Version:
    return Version(number, open_encoder(servable, limits, histories), Scorer(servable))


def _answer(request: Any, asked: Sequence[Asked], found: Sequence[Scores | Exception]) -> Any:
    """Those outputs that a request asks for."""
    scores = []
    for one in found:
        if isinstance(one, Exception):
            return refuse(one)
        scores.append(one)
    events = [event for _, event in asked]
    outputs: dict[str, Callable[[], npt.NDArray[Any]]] = {
        SCORES: lambda: stack(scores, NO_CANDIDATE),
        UNSEEN_USER: lambda: np.array([[event.unseen_user] for event in events], bool),
        UNSEEN_CANDIDATES: lambda: stack([event.unseen_candidates for event in events], False),
        VERSION: lambda: np.array([[version.number] for version, _ in asked], np.int64),
    }
    wanted = request.requested_output_names()
    return answer({name: make() for name, make in outputs.items() if name in wanted})


def stack(lists: Sequence[npt.NDArray[Any]], filler: float | bool) -> npt.NDArray[Any]:
    """One list of each event, as rows of one length: [events, candidates]."""
    longest = max((len(row) for row in lists), default=0)
    rows = np.full((len(lists), longest), filler, lists[0].dtype if lists else np.float32)
    for place, row in enumerate(lists):
        rows[place, : len(row)] = row
    return rows
