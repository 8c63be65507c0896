"""Texts of requests become answers, those that wait together in one go."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...histories.store import StoreError
from ...serving.limits import Limits, RequestError
from ...serving.scoring.versions import Canary, meets_canary
from ..candidates.kept_histories import StoreHistories
from ..recommender import Question, Recommender
from .request import Asked, read_request
from .tally import RecommendTally

Told = dict[str, Any]
"""An answer as JSON has it."""


class Responder:
    """Answers what users should see.

    Args:
        kept: The histories of users.
        recommenders: By the version of the ranker.
        current: The version that answers all who do not meet the canary.
        canary: A version that some users meet; None where there is none.
        limits: What a request may ask for.
        tally: Takes what is counted.
        names_version: Whether answers say which version scored them.
    """

    def __init__(
        self,
        kept: StoreHistories,
        recommenders: Mapping[int, Recommender],
        current: int,
        canary: Canary | None,
        limits: Limits,
        tally: RecommendTally,
        names_version: bool,
    ) -> None:
        """Remember all of it."""
        self._kept, self._recommenders, self._limits = kept, recommenders, limits
        self._current, self._canary = current, canary
        self._tally, self._names_version = tally, names_version

    def respond(self, texts: Sequence[bytes | str]) -> Iterator[tuple[int, Told | Exception]]:
        """Answer requests.

        Yields:
            A request's place and its answer, or what is wrong with it: a RequestError where that
            is the request.
        """
        begin = time.perf_counter()
        by_version: dict[int, list[tuple[int, Asked, Question, bool]]] = {}
        for place, text in enumerate(texts):
            try:
                asked, question, is_known = self._read(text)
            except Exception as error:  # whatever it is, it is this request's alone
                self._tally.refused(self._current)
                yield place, _told(error)
                continue
            by_version.setdefault(self._version_of(asked.user), []).append(
                (place, asked, question, is_known)
            )
        for version, waiting in by_version.items():
            recommender = self._recommenders[version]
            questions = [question for _, _, question, _ in waiting]
            for which, answer in recommender.recommend_all(questions):
                place, asked, _, is_known = waiting[which]
                if isinstance(answer, Exception):
                    self._tally.refused(version)
                    yield place, _told(answer)
                    continue
                seconds = time.perf_counter() - begin
                self._tally.answered(version, answer, is_known, seconds)
                by = {"version": version} if self._names_version else {}
                yield place, {"user": asked.user, **by, **answer.to_dict()}

    def _read(self, text: bytes | str) -> tuple[Asked, Question, bool]:
        asked = read_request(text, self._limits)
        is_known = self._kept.is_known(asked.user)
        history = self._kept.of([asked.user]).get(asked.user)
        return asked, Question(history, asked.top, asked.facts), is_known

    def _version_of(self, user: Any) -> int:
        if self._canary is not None and meets_canary(user, self._canary):
            return self._canary.number
        return self._current


def _told(error: Exception) -> Exception:
    """Call what the request is to blame for by its name."""
    if isinstance(error, MerlinSimError) and not isinstance(error, RequestError | StoreError):
        return RequestError(str(error))
    return error
