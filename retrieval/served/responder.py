"""Texts of requests become answers, those that wait together in one go."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...histories.store import StoreError
from ...serving.limits import RequestError, UnavailableError
from ...serving.scoring.canary import Canary, meets_canary
from ..candidates.kept_histories import StoreHistories
from ..recommender import Question, Recommender
from .request import RecommendRequest, read_request
from .tally import RecommendTally

NOT_READ = "the history of this user cannot be read"
Told = dict[str, Any]
"""An answer as JSON has it."""


class Responder:
    """Answers what users should see.

    Args:
        kept: The histories of users.
        recommenders: By the version of the ranker.
        current: The version that answers all who do not meet the canary.
        canary: A version that some users meet; None where there is none.
        candidates: How many items are retrieved, and answered at most.
        tally: Takes what is counted.
        names_version: Whether answers say which version scored them.
    """

    def __init__(
        self,
        kept: StoreHistories,
        recommenders: Mapping[int, Recommender],
        current: int,
        canary: Canary | None,
        candidates: int,
        tally: RecommendTally,
        names_version: bool,
    ) -> None:
        """Remember all of it."""
        self._kept, self._recommenders, self._candidates = kept, recommenders, candidates
        self._current, self._canary = current, canary
        self._tally, self._names_version = tally, names_version

    def respond(
        self, texts: Sequence[bytes | str], counted: Sequence[bool]
    ) -> Iterator[tuple[int, Told | Exception]]:
        """Answer requests.

        Args:
            texts: JSON.
            counted: Whether each is counted.

        Yields:
            A request's place and its answer, or what is wrong with it: a RequestError where that
            is the request.
        """
        begin = time.perf_counter()
        by_version: dict[int, list[tuple[int, RecommendRequest, Question, bool]]] = {}
        for place, read in enumerate(self._read(texts)):
            if isinstance(read, Exception):
                if counted[place]:
                    self._tally.refused(self._current)
                yield place, _told(read)
                continue
            asked, question, is_known = read
            by_version.setdefault(self._version_of(asked.user), []).append(
                (place, asked, question, is_known)
            )
        for version, waiting in by_version.items():
            recommender = self._recommenders[version]
            questions = [question for _, _, question, _ in waiting]
            for which, answer in recommender.recommend_all(questions):
                place, asked, _, is_known = waiting[which]
                if isinstance(answer, Exception):
                    if counted[place]:
                        self._tally.refused(version)
                    yield place, _told(answer)
                    continue
                seconds = time.perf_counter() - begin
                if counted[place]:
                    self._tally.answered(version, answer, is_known, seconds)
                by = {"version": version} if self._names_version else {}
                yield place, {"user": asked.user, **by, **answer.to_dict()}

    def _read(
        self, texts: Sequence[bytes | str]
    ) -> list[tuple[RecommendRequest, Question, bool] | Exception]:
        """Read requests, and the histories of their users together."""
        found: list[Any] = []
        for text in texts:
            try:
                asked = read_request(text, self._candidates)
                found.append((asked, self._kept.is_known(asked.user)))
            except Exception as error:  # whatever it is, it is this request's alone
                found.append(error)
        sound = [one for one in found if not isinstance(one, Exception)]
        histories = iter(self._kept.read_all([asked.user for asked, _ in sound]))
        told: list[tuple[RecommendRequest, Question, bool] | Exception] = []
        for one in found:
            if isinstance(one, Exception):
                told.append(one)
                continue
            asked, is_known = one
            history = next(histories)
            if isinstance(history, StoreError):
                print(f"merlin-sim: {history}", file=sys.stderr, flush=True)
                told.append(UnavailableError(NOT_READ))
            else:
                told.append((asked, Question(history, asked.top, asked.facts), is_known))
        return told

    def _version_of(self, user: Any) -> int:
        if self._canary is not None and meets_canary(user, self._canary):
            return self._canary.number
        return self._current


def _told(error: Exception) -> Exception:
    """Call what the request is to blame for by its name."""
    if isinstance(error, MerlinSimError) and not isinstance(error, RequestError | UnavailableError):
        return RequestError(str(error))
    return error
