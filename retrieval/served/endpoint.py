"""The model ``recommend`` as a server has it beside its own. Imports no TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...foundation.exceptions import MerlinSimError
from ...serving.limits import RequestError
from ...serving.servables.servable import Servable
from ...serving.triton.config_text import TEXT, TritonModel, TritonTensor
from ...serving.triton.repository import ServedModel
from ..candidates.catalogue import Catalogue
from ..candidates.index_directory import check_index
from ..candidates.item_index import import_faiss
from ..ranker import check_ranker
from ..rules.item_facts import ItemFacts
from ..rules.rules_file import read_rules
from .request import check_length

if TYPE_CHECKING:
    from aiohttp import web

    from ...serving.triton.front import Front

NAME = "recommend"
REQUEST, ANSWER = "request", "answer"
"""Names of the input and the output: a text of JSON each."""
TOWERS, INDEX, RULES, CANDIDATES = "towers", "index", "rules", "candidates"
AT_ONCE = 8
"""Requests that are answered in one go: more of them would wait for each other."""


class RecommendEndpoint:
    """See :class:`~merlin_sim.serving.triton.serve.FurtherModel`.

    Args:
        towers: An exported model with vectors.
        index: The index of its items.
        rules: A file of rules; None for none.
        candidates: How many items are retrieved for a user.

    Raises:
        MerlinSimError: Where they do not fit each other, or something is missing.
    """

    name = NAME
    path = "/recommend"

    def __init__(self, towers: Path, index: Path, rules: Path | None, candidates: int) -> None:
        """Look whether all of it can be loaded."""
        import_faiss()
        servable = Servable.open(towers)
        check_index(index, servable)
        if rules is not None:
            ItemFacts(read_rules(rules), servable, Catalogue.of(servable))
        self.settings: dict[str, Any] = {
            TOWERS: str(towers.resolve()),
            INDEX: str(index.resolve()),
            CANDIDATES: candidates,
            RULES: None if rules is None else str(rules.resolve()),
        }

    def model(self, servable: Servable, canary: Servable | None, keeps: bool) -> ServedModel:
        """See FurtherModel."""
        if not keeps:
            raise MerlinSimError("recommendations need a store of histories: name it.")
        check_ranker(servable)
        if canary is not None:
            check_ranker(canary)
        config = TritonModel(
            self.name,
            [TritonTensor(REQUEST, TEXT, (1,))],
            [TritonTensor(ANSWER, TEXT, (1,))],
            backend="python",
            max_batch_size=AT_ONCE,
        )
        return ServedModel(config, "merlin_sim.retrieval.served.recommend_model.RecommendModel")

    async def answer(self, front: Front, body: bytes) -> web.Response:
        """See FurtherModel."""
        from aiohttp import web  # comes with the extra `serve`

        found = await front.infer(self.name, self.ask(body))
        if found.status != 200:
            return found
        assert isinstance(found.body, bytes)
        return web.Response(body=self.tell(found.body), content_type="application/json")

    @staticmethod
    def ask(body: bytes) -> bytes:
        """Make of a request's body one of Triton's protocol.

        Raises:
            RequestError: Where it is none.
        """
        check_length(len(body))
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"expected UTF-8, found byte 0x{body[error.start]:02x}") from None
        tensor = {"name": REQUEST, "shape": [1, 1], "datatype": "BYTES", "data": [text]}
        return json.dumps({"inputs": [tensor]}).encode()

    @staticmethod
    def tell(content: bytes) -> bytes:
        """Make of Triton's answer the body of ours."""
        answer: dict[str, Any] = json.loads(content)
        text: str = answer["outputs"][0]["data"][0]
        return text.encode()
