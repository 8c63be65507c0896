"""The model ``recommend`` as a server has it besides its own. Imports no TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...foundation.exceptions import MerlinSimError
from ...foundation.requests import RequestError, check_fields
from ..event import parse_json
from ..histories.store import key_text
from ..servable import Servable
from ..triton.repository import TEXT, TritonModel, TritonTensor
from .index import check_index, import_faiss
from .items import Catalogue, ItemFacts
from .rules import read_rules

if TYPE_CHECKING:
    from aiohttp import web

    from ..triton.front import Front

NAME = "recommend"
REQUEST, ANSWER = "request", "answer"
"""Names of the input and the output: a text of JSON each."""
TOWERS, INDEX, RULES, MOST_RETRIEVED = "towers", "index", "rules", "retrieved"
AT_ONCE = 8
"""Requests that are answered in one go: more of them would wait for each other."""


class RecommendEndpoint:
    """See :class:`~merlin_sim.serving.triton.serve.Endpoint`."""

    name = NAME
    path = "/recommend"

    def __init__(self, towers: Path, index: Path, rules: Path | None, retrieved: int) -> None:
        import_faiss()
        servable = Servable.open(towers)
        check_index(index, servable)
        if rules is not None:
            ItemFacts(read_rules(rules), servable, Catalogue.of(servable))
        self.settings: dict[str, Any] = {
            TOWERS: str(towers.resolve()),
            INDEX: str(index.resolve()),
            MOST_RETRIEVED: retrieved,
            RULES: None if rules is None else str(rules.resolve()),
        }

    def model(self, servable: Servable, canary: Servable | None, keeps: bool) -> TritonModel:
        """See Endpoint."""
        if not keeps:
            raise MerlinSimError("recommendations need a store of histories: name it.")
        servable.check_ranks()
        if canary is not None:
            canary.check_ranks()
        return TritonModel(
            self.name,
            [TritonTensor(REQUEST, TEXT, (1,))],
            [TritonTensor(ANSWER, TEXT, (1,))],
            backend="python",
            max_batch_size=AT_ONCE,
            worker="merlin_sim.serving.retrieval.recommend_model.RecommendModel",
        )

    async def answer(self, front: Front, body: bytes) -> web.Response:
        """See Endpoint."""
        from aiohttp import web  # comes with the extra `serve`

        found = await front.infer(self.name, self.ask(body))
        if found.status != 200:
            return found
        assert isinstance(found.body, bytes)
        return web.Response(body=self.body_of(found.body), content_type="application/json")

    @staticmethod
    def ask(body: bytes) -> bytes:
        """Make of a request's body one of Triton's protocol."""
        check_length(len(body))
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"expected UTF-8, found byte 0x{body[error.start]:02x}") from None
        tensor = {"name": REQUEST, "shape": [1, 1], "datatype": "BYTES", "data": [text]}
        return json.dumps({"inputs": [tensor]}).encode()

    @staticmethod
    def body_of(content: bytes) -> bytes:
        """Make of Triton's answer the body of ours."""
        answer: dict[str, Any] = json.loads(content)
        text: str = answer["outputs"][0]["data"][0]
        return text.encode()


USER, TOP, FACTS = "user", "top", "facts"
DEFAULT_TOP = 20
LONGEST = 1 << 16
"""Bytes of a request."""


class RecommendRequest(NamedTuple):
    """A request whose form is right."""

    user: Any
    top: int
    facts: dict[str, Any]


def read_request(text: bytes | str, most: int) -> RecommendRequest:
    """Read a request.

    >>> read_request('{"user": "A1", "facts": {"age": 17}}', 500)
    RecommendRequest(user='A1', top=20, facts={'age': 17})
    """
    check_length(len(text))
    fields = parse_json(text)
    if isinstance(fields, RequestError):
        raise fields
    check_fields(fields, (USER,), (TOP, FACTS))
    key_text(fields[USER], USER)
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RequestError(f"{FACTS}: expected text, received a lone surrogate") from None
    return RecommendRequest(fields[USER], _top(fields, most), _facts(fields.get(FACTS, {})))


def check_length(length: int) -> None:
    """Refuse a request of more bytes than any needs."""
    if length > LONGEST:
        raise RequestError(f"expected a request of at most {LONGEST:,} bytes, received {length:,}")


def _top(fields: Mapping[str, Any], most: int) -> int:
    given = fields.get(TOP, min(DEFAULT_TOP, most))
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= most:
        raise RequestError(
            f"{TOP}: expected a whole number from 1 to {most:,}, as many items as are retrieved "
            f"(`--retrieved`), received {given!r:.60}"
        )
    return int(given)


def _facts(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise RequestError(f"{FACTS}: expected an object, received {given!r:.60}")
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        if not all(one is None or isinstance(one, str | int | float) for one in values):
            raise RequestError(
                f"{FACTS}.{name}: expected a text, a number, a truth value or a list of them, "
                f"received {value!r:.60}"
            )
    return dict(given)
