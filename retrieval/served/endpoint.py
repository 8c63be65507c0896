"""The model ``recommend`` as a server has it beside its own. Imports no TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...serving.limits import RequestError
from ...serving.servables.servable import Servable
from ...serving.triton.config_text import TEXT, TritonModel, TritonTensor
from ...serving.triton.repository import Served, write_model
from ..candidates.catalogue import Catalogue
from ..candidates.index_directory import check_index
from ..candidates.item_index import import_faiss
from ..ranker import check_ranker
from ..rules.item_facts import ItemFacts
from ..rules.rules_file import read_rules
from .request import check_length

REQUEST, ANSWER = "request", "answer"
"""Names of the input and the output: a text of JSON each."""
TOWERS, INDEX, RULES, CANDIDATES = "towers", "index", "rules", "candidates"
HAS_VERSIONS = "has_versions"
AT_ONCE = 8
"""Requests that are answered in one go: more of them would wait for each other."""


class RecommendEndpoint:
    """See :class:`~merlin_sim.serving.triton.repository.FurtherModel`.

    Args:
        towers: An exported model with vectors.
        index: The index of its items.
        rules: A file of rules; None for none.
        candidates: How many items are retrieved for a user.

    Raises:
        MerlinSimError: Where they do not fit each other, or something is missing.
    """

    name = "recommend"
    path = "/recommend"

    def __init__(self, towers: Path, index: Path, rules: Path | None, candidates: int) -> None:
        """Look whether all of it can be loaded."""
        import_faiss()
        servable = Servable.open(towers)
        check_index(index, servable)
        if rules is not None:
            ItemFacts(read_rules(rules), servable, Catalogue.of(servable))
        self._settings = {
            TOWERS: str(towers.resolve()),
            INDEX: str(index.resolve()),
            CANDIDATES: str(candidates),
            **({} if rules is None else {RULES: str(rules.resolve())}),
        }

    def write(self, served: Served, directory: Path) -> None:
        """See FurtherModel."""
        if served.histories is None:
            raise MerlinSimError("recommendations need a store of histories: name it.")
        check_ranker(served.servable)
        if served.canary is not None:
            check_ranker(served.canary[1])
        versions = {} if served.version is None else {HAS_VERSIONS: str(True)}
        model = TritonModel(
            self.name,
            [TritonTensor(REQUEST, TEXT, (1,))],
            [TritonTensor(ANSWER, TEXT, (1,))],
            backend="python",
            max_batch_size=AT_ONCE,
            parameters={**served.settings, **self._settings, **versions},
        )
        module = "retrieval.served.recommend_model"
        write_model(directory, model, module, served.version or 1)

    def ask(self, body: bytes) -> bytes:
        """See FurtherModel."""
        check_length(len(body))
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"expected UTF-8, found byte 0x{body[error.start]:02x}") from None
        tensor = {"name": REQUEST, "shape": [1, 1], "datatype": "BYTES", "data": [text]}
        return json.dumps({"inputs": [tensor]}).encode()

    def tell(self, content: bytes) -> bytes:
        """See FurtherModel."""
        answer: dict[str, Any] = json.loads(content)
        text: str = answer["outputs"][0]["data"][0]
        return text.encode()
