"""Interactions that come over HTTP: checked, kept, and only then acknowledged."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from prometheus_client import CollectorRegistry, Counter, Histogram

from ..foundation.requests import RequestError
from ..schemas.item_table import KEY
from .event import parse_json
from .histories.open_store import open_store, shown_store
from .histories.store import HistoryStore, Interaction, StoreError, parse_interaction
from .servable import Servable, ServedColumn

if TYPE_CHECKING:
    from aiohttp import web

    from .lookups import LogLookup


@dataclass(frozen=True)
class KeyKind:
    """Which keys an event may have, known without reading a vocabulary."""

    is_text: bool
    of_numbers: LogLookup | None = None
    """Reads the log's numbers where the workflow makes keys of them."""

    def check(self, key: Any, where: str) -> None:
        """Refuse a key for which every event that has it would be refused."""
        if self.of_numbers is not None:
            self.of_numbers.look_up(key, where)
        elif isinstance(key, str) != self.is_text:
            expected = "a string" if self.is_text else "a whole number"
            raise RequestError(
                f"{where}: expected {expected}, as the model's keys are, received {key!r:.60}"
            )


def key_kind(servable: Servable, column: ServedColumn) -> KeyKind:
    """Say what the keys of a column are."""
    path = servable.vocabulary(column.domain)
    if path is None:
        return KeyKind(is_text=False)
    from .lookups import LogLookup, VocabularyLookup, as_in_log, read_workflow  # imports NVTabular

    kind = pq.read_schema(path).field(KEY).type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    workflow = read_workflow(servable.path)
    if workflow is None:
        return KeyKind(is_text)
    features, fitted, _ = workflow
    lookup = as_in_log(VocabularyLookup(column.domain, {}, is_text), features, fitted)
    return KeyKind(is_text, lookup if isinstance(lookup, LogLookup) else None)


def open_served_store(address: str, servable: Servable) -> HistoryStore:
    """Open a store for a servable; refuse both where no history would be found.

    A store is taken if any of the users who are looked at could be one of the model's.
    """
    servable.check_reads_histories()
    store, column = open_store(address), servable.columns.users[0]
    kind, refused = key_kind(servable, column), None
    for user in store.some_users():
        try:
            kind.check(json.loads(user), column.name)
            return store
        except RequestError as error:
            refused = error
    if refused is not None:
        store.close()
        raise StoreError(f"{shown_store(address)}: the users of the store: {refused}.")
    return store


PATH = "/histories"
MOST = 10_000
"""Interactions of one request."""
WRITE_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
NOT_KEPT = "the store of histories cannot be written just now: its reason is in the server's log"


class Appends:
    """Keeps what requests bring; those that wait while others are written are written together."""

    def __init__(
        self,
        store: HistoryStore,
        user: KeyKind,
        items: Mapping[str, KeyKind],
        needed: Sequence[str],
        registry: CollectorRegistry,
    ) -> None:
        """Begin with nothing.

        Args:
            store: Keeps interactions.
            user: The keys of users.
            items: Those of an item's features by domain, the item's own first.
            needed: Which of these an object has to have; a bare key will do where it is one.
            registry: Counts requests.
        """
        self._store, self._user = store, user
        self._items, self._needed = items, needed
        self._waiting: list[tuple[list[Interaction], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="histories")
        prefix = "merlin_sim_histories_append"
        self._refused, self._failed, self._requests, self._interactions = (
            Counter(name, text, registry=registry)
            for name, text in (
                (f"{prefix}_refused", "Requests that were refused"),
                (f"{prefix}_failures", "Requests whose interactions could not be kept"),
                (f"{prefix}_requests", "Requests that brought interactions that were kept"),
                (f"{prefix}s", "Interactions that were kept"),
            )
        )
        self._seconds = Histogram(
            f"{prefix}_seconds",
            "Seconds in writes to the store; one may be for several requests",
            registry=registry,
            buckets=WRITE_SECONDS,
        )

    @classmethod
    def of(cls, servable: Servable, store: HistoryStore, registry: CollectorRegistry) -> Appends:
        """Keep what a servable's events can read; no vocabulary is read."""
        columns = servable.columns
        items = {column.domain: key_kind(servable, column) for column in columns.targets}
        path = servable.vocabulary(columns.targets[0].domain)
        known = () if path is None else pq.read_schema(path).names
        first, *features = items
        needed = [first, *(name for name in features if name not in known)]
        return cls(store, key_kind(servable, columns.users[0]), items, needed, registry)

    async def answer(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Keep an interaction, or a list of them: all or none. A status, and what to say."""
        try:
            interactions = self._read(body)
        except RequestError as error:
            self._refused.inc()
            return 400, {"error": str(error)}
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((interactions, kept))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        try:
            await kept
        except StoreError as error:
            print(f"merlin-sim: {error}", file=sys.stderr, flush=True)
            return 503, {"error": NOT_KEPT}
        return 200, {"kept": len(interactions)}

    async def answer_front(self, front: object, body: bytes) -> web.Response:
        """Answer a POST."""
        from aiohttp import web  # comes with the extra `serve`

        status, answer = await self.answer(body)
        later = {"Retry-After": "1"} if status == 503 else None
        return web.json_response(answer, status=status, headers=later)

    def close(self) -> None:
        """Wait for what is being written."""
        self._writer.shutdown()
        self._store.close()

    def _read(self, body: bytes) -> list[Interaction]:
        fields = parse_json(body)
        if isinstance(fields, RequestError):
            raise fields
        several = isinstance(fields, list)
        if several and len(fields) > MOST:
            raise RequestError(f"expected at most {MOST:,} interactions, received {len(fields):,}")
        found = []
        for number, one in enumerate(fields if several else [fields], start=1):
            try:
                found.append(parse_interaction(one))
                self._user.check(one["user"], "user")
                self._check_item(one["item"])
            except RequestError as error:
                where = f"interaction {number}: " if several else ""
                raise RequestError(f"{where}{error}") from error
        return found

    def _check_item(self, item: Any) -> None:
        """Refuse an item that no event could have: all of its user's events would be refused."""
        first = self._needed[0]
        given = item if isinstance(item, dict) else {first: item}
        if not set(self._needed) <= set(given) <= set(self._items):
            raise RequestError(
                f"item: expected {', '.join(map(repr, self._needed))} and nothing besides "
                f"{', '.join(self._items)}, received {json.dumps(item):.100}"
            )
        for name, key in given.items():
            self._items[name].check(key, f"item.{name}" if given is item else "item")

    async def _write(self) -> None:
        """Write what waits, until nothing does."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            taken, self._waiting = self._waiting, []
            together = [one for interactions, _ in taken for one in interactions]
            begin = loop.time()
            problem: Exception | None = None
            try:
                await loop.run_in_executor(self._writer, self._store.append, together)
            except Exception as error:  # whatever it is, those who wait for it receive it
                problem = error
            if problem is None:
                self._requests.inc(len(taken))
                self._interactions.inc(len(together))
                self._seconds.observe(loop.time() - begin)
            else:
                self._failed.inc(len(taken))
            for _, kept in taken:
                if kept.done():  # whose caller has gone
                    continue
                if problem is None:
                    kept.set_result(None)
                else:
                    kept.set_exception(problem)
