"""The model `recommend` of a server: users in, items and scores out."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from prometheus_client import Counter, Histogram

from ...foundation.exceptions import MerlinSimError
from ...foundation.requests import RequestError
from ..histories.open_store import open_store
from ..histories.store import StoreError
from ..limits import UnavailableError
from ..servable import Servable
from ..settings import ModelSettings
from ..versions import Canary, meets_canary
from ..workers.metrics import SECONDS, CountedReads
from ..workers.worker import Reply, TritonRequest
from .endpoint import (
    ANSWER,
    INDEX,
    MOST_RETRIEVED,
    NAME,
    REQUEST,
    RULES,
    TOWERS,
    USER,
    RecommendRequest,
    read_request,
)
from .index import open_index
from .recommender import POPULAR, Answer, Question, Recommender
from .rules import Rules, read_rules
from .towers import Towers
from .users import StoreHistories

_BY_VERSION = ("version",)
_RECOMMEND = "merlin_sim_recommend"
REQUESTS = Counter(f"{_RECOMMEND}_requests", "Requests that were answered", _BY_VERSION)
REFUSED = Counter(f"{_RECOMMEND}_refused", "Requests that were refused, or failed", _BY_VERSION)
RETRIEVED = Counter(f"{_RECOMMEND}_retrieved", "Items that were retrieved", _BY_VERSION)
KEPT = Counter(f"{_RECOMMEND}_kept", "Retrieved items that the filters left", _BY_VERSION)
ITEMS = Counter(f"{_RECOMMEND}_items", "Items in answers", _BY_VERSION)
EMPTY_HISTORIES = Counter(
    f"{_RECOMMEND}_empty_histories",
    "Requests of users without a history, who got popular items",
    _BY_VERSION,
)
UNSEEN_USERS = Counter(
    f"{_RECOMMEND}_unseen_users",
    "Requests of users who were not there when the towers were trained",
    _BY_VERSION,
)
TIME = Histogram(
    f"{_RECOMMEND}_seconds",
    "Seconds from a request's arrival at the model to its answer",
    _BY_VERSION,
    buckets=SECONDS,
)
STAGE_TIME = Histogram(
    f"{_RECOMMEND}_stage_seconds",
    "Seconds that requests spent in a stage",
    ("version", "stage"),
    buckets=SECONDS,
)


def count_stage(version: int, stage: str, seconds: float) -> None:
    """Count a request's stage."""
    STAGE_TIME.labels(str(version), stage).observe(seconds)


def count_answer(version: int, answer: Answer, is_known: bool, seconds: float) -> None:
    """Count an answer of a version of the ranker, of a user whom the towers know or not."""
    of = str(version)
    REQUESTS.labels(of).inc()
    REFUSED.labels(of).inc(0)  # no refusal is 0, not unknown
    RETRIEVED.labels(of).inc(answer.retrieved)
    KEPT.labels(of).inc(answer.kept)
    ITEMS.labels(of).inc(len(answer.items))
    EMPTY_HISTORIES.labels(of).inc(answer.source == POPULAR)
    UNSEEN_USERS.labels(of).inc(not is_known)
    TIME.labels(of).observe(seconds)


NOT_READ = "the history of this user cannot be read"
AnswerFields = dict[str, Any]


@dataclass(frozen=True)
class Responder:
    """Answers what users should see."""

    kept: StoreHistories
    recommenders: Mapping[int, Recommender]
    """By the version of the ranker."""
    current: int
    """The version that answers all who do not meet the canary."""
    canary: Canary | None
    most: int
    """Items that are retrieved, and answered at most."""
    names_version: bool
    """Whether answers say which version scored them."""

    def respond(
        self, texts: Sequence[bytes | str], counted: Sequence[bool]
    ) -> Iterator[tuple[int, AnswerFields | Exception]]:
        """Answer requests: give a request's index and its answer, or what is wrong with it.

        That is a RequestError where it is the request.
        """
        begin = time.perf_counter()
        by_version: dict[int, list[tuple[int, RecommendRequest, Question, bool]]] = {}
        for index, read in enumerate(self._read(texts)):
            if isinstance(read, Exception):
                yield index, _refused(read, self.current, counted[index])
            else:
                version = self._version_of(read[0].user)
                by_version.setdefault(version, []).append((index, *read))
        for version, waiting in by_version.items():
            questions = [question for _, _, question, _ in waiting]
            for which, answer in self.recommenders[version].recommend_all(questions):
                index, asked, _, is_known = waiting[which]
                if isinstance(answer, Exception):
                    yield index, _refused(answer, version, counted[index])
                    continue
                if counted[index]:
                    count_answer(version, answer, is_known, time.perf_counter() - begin)
                by = {"version": version} if self.names_version else {}
                yield index, {"user": asked.user, **by, **answer.to_dict()}

    def _read(
        self, texts: Sequence[bytes | str]
    ) -> list[tuple[RecommendRequest, Question, bool] | Exception]:
        """Read requests, and the histories of their users together."""
        found: list[Any] = []
        for text in texts:
            try:
                asked = read_request(text, self.most)
                found.append((asked, self.kept.is_known(asked.user)))
            except Exception as error:  # whatever it is, it is this request's alone
                found.append(error)
        sound = [index for index, one in enumerate(found) if not isinstance(one, Exception)]
        histories = self.kept.read_all([found[index][0].user for index in sound])
        for index, history in zip(sound, histories, strict=True):
            asked, is_known = found[index]
            if isinstance(history, StoreError):
                print(f"merlin-sim: {history}", file=sys.stderr, flush=True)
                found[index] = UnavailableError(NOT_READ)
            else:
                found[index] = asked, Question(history, asked.top, asked.facts), is_known
        return found

    def _version_of(self, user: Any) -> int:
        if self.canary is not None and meets_canary(user, self.canary):
            return self.canary.number
        return self.current


def _refused(error: Exception, version: int, is_counted: bool) -> Exception:
    """Count a refusal; call what the request is to blame for by its name."""
    if is_counted:
        REFUSED.labels(str(version)).inc()
    if isinstance(error, MerlinSimError) and not isinstance(error, RequestError | UnavailableError):
        return RequestError(str(error))
    return error


PROBED = "merlin-sim-probe"
"""The key of a user who does not exist, for the server's own probe."""


class RecommendModel:
    """Answers the requests that Triton's dynamic batching hands over together."""

    merges = False

    def __init__(self, settings: ModelSettings) -> None:
        # Users stand side by side; a thread of each that waits for others' would cost more.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        own = settings.endpoints[NAME]
        towers = Towers(Servable.open(own[TOWERS]))
        index = open_index(Path(own[INDEX]), towers)
        rules = read_rules(Path(own[RULES])) if own[RULES] is not None else Rules()
        recommenders = {
            number: Recommender(
                towers, index, ranker, rules, own[MOST_RETRIEVED],
                functools.partial(count_stage, number),
            )
            for number, ranker in settings.open().items()
        }  # fmt: skip
        for recommender in recommenders.values():
            recommender.warm_up()
        assert settings.histories is not None, "the endpoint asks for one"
        self._store = open_store(settings.histories, later=True)
        encoder = towers.encoder
        self._known = encoder.users[0].example(0) if encoder.columns.users else PROBED
        self.responder = Responder(
            StoreHistories(CountedReads(self._store, NAME), encoder),
            recommenders,
            settings.number,
            settings.canary,
            own[MOST_RETRIEVED],
            settings.version is not None,
        )

    def probe(self) -> dict[str, npt.NDArray[Any]]:
        """See WorkerModel: a user whom the towers know.

        Rules may ask for a fact, which is then missing: the answer says so, and is one.
        """
        text = json.dumps({USER: self._known, "top": 1}, ensure_ascii=False).encode()
        return {REQUEST: np.array([[text]], object)}

    def take(self, requests: Sequence[TritonRequest], reply: Reply) -> None:
        """Answer requests, each as soon as it can be."""
        texts, indices, counted = [], [], []
        for index, request in enumerate(requests):
            given = request.tensors[REQUEST]
            if given.size != 1:
                reply(index, RequestError(f"{REQUEST}: expected one, received {given.size}"))
                continue
            indices.append(index)
            texts.append(given.flat[0])
            counted.append(not request.is_probe)
        unanswered = set(range(len(texts)))
        try:
            for which, fields in self.responder.respond(texts, counted):
                unanswered.remove(which)
                reply(indices[which], _response(fields))
        except Exception as error:  # an error of TensorFlow goes to all that wait
            for which in unanswered:
                reply(indices[which], error)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def _response(fields: AnswerFields | Exception) -> dict[str, npt.NDArray[Any]] | Exception:
    if isinstance(fields, Exception):
        return fields
    text = json.dumps(fields, ensure_ascii=False)
    return {ANSWER: np.array([[text.encode()]], object)}
