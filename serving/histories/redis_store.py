"""Histories on a Redis server, where one machine's file does not do. Needs the extra `redis`.

A user's history is a list, an interaction its time and its item as JSON. What has to happen at once
is a script, which Redis runs alone; so it is one server (with replicas), not a cluster. A store is
filled under a new number, its generation, and then replaces the old one at once.

Redis answers when an append is in its memory. That a server which was killed has it again is a
matter of its own configuration: `appendonly yes`.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .store import (
    FORMAT,
    Filling,
    History,
    HistoryStore,
    Interaction,
    StoreError,
    SummedHistory,
    as_text,
)

ABOUT = "merlin-sim:histories"
"""The key of what is known of a store; all its keys begin so. One store has one of the server's
databases."""
PATIENCE_SECONDS = 30.0
"""Seconds a Redis may take to answer where a store is filled or inspected."""
READ_SECONDS = 0.5
"""Seconds it may take where a request waits for a model."""
APPEND_SECONDS = 5.0
"""The same of an append: what was not answered may have been kept all the same."""
_MAKE = """
if redis.call('EXISTS', KEYS[1]) == 1 then return end
redis.call('HSET', KEYS[1], 'format', ARGV[1], 'generation', 1, 'generations', 1)
if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'keep', ARGV[2]) end
"""
_APPEND = """
local generation = ARGV[1]
if generation == '' then generation = redis.call('HGET', KEYS[1], 'generation') end
local keep = redis.call('HGET', KEYS[1], 'keep')
local function moment(entry)
  return tonumber(string.match(entry, '^%S+')) or -math.huge
end
for index = 2, #ARGV, 3 do
  local user, time, item = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local history = KEYS[1] .. ':' .. generation .. ':' .. user
  local newest = redis.call('LINDEX', history, -1)
  if newest and time == 'null' then time = string.match(newest, '^%S+') end
  local entry = time .. ' ' .. item
  local later = {}
  while newest and moment(newest) > moment(entry) do
    table.insert(later, redis.call('RPOP', history))
    newest = redis.call('LINDEX', history, -1)
  end
  redis.call('RPUSH', history, entry)
  for last = #later, 1, -1 do redis.call('RPUSH', history, later[last]) end
  if keep then redis.call('LTRIM', history, -keep, -1) end
  local of_user = ':' .. generation .. ':' .. user
  if redis.call('EXISTS', KEYS[1] .. ':summary' .. of_user) == 1 then
    redis.call('RPUSH', KEYS[1] .. ':since' .. of_user, item)
  end
  redis.call('SADD', KEYS[1] .. ':' .. generation, user)
end
"""
_READ = """
local about = redis.call('HMGET', KEYS[1], 'format', 'generation')
local found = {about[1] or ''}
for index = 2, #ARGV do
  local history = KEYS[1] .. ':' .. (about[2] or '') .. ':' .. ARGV[index]
  found[index] = table.concat(redis.call('LRANGE', history, -ARGV[1], -1), '\\n')
end
return found
"""
"""The store's form, then one text of each user: a thousand small answers take Python ten times as
long."""
_READ_SUMMED = """
local about = redis.call('HMGET', KEYS[1], 'format', 'generation', 'keep')
local newest, found = tonumber(ARGV[1]), {about[1] or ''}
local short = math.min(newest, tonumber(about[3] or newest))
for index = 3, #ARGV do
  local of_user = ':' .. (about[2] or '') .. ':' .. ARGV[index]
  local history, summary = KEYS[1] .. of_user, KEYS[1] .. ':summary' .. of_user
  local since = KEYS[1] .. ':since' .. of_user
  local kept = redis.call('HMGET', summary, 'model', 'summary', 'version')
  local version = kept[3]
  if kept[1] ~= ARGV[2] then
    version = false
    if redis.call('LLEN', history) >= short then
      redis.call('DEL', summary, since)
      local entries = redis.call('LRANGE', history, 0, -1)
      for _, entry in ipairs(entries) do
        redis.call('RPUSH', since, string.match(entry, '^%S+ (.*)$'))
      end
      version = redis.call('HINCRBY', KEYS[1], 'summaries', 1)
      redis.call('HSET', summary, 'model', ARGV[2], 'version', version)
      kept[2] = false
    end
  end
  table.insert(found, table.concat(redis.call('LRANGE', history, -newest, -1), '\\n'))
  table.insert(found, tostring(version or ''))
  table.insert(found, version and kept[2] or '')
  table.insert(found, version and table.concat(redis.call('LRANGE', since, 0, -1), ',') or '')
end
return found
"""
"""The store's form, then four texts of each user: newest, the summary's version, it, and since."""
_KEEP_SUMMARY = """
local of_user = ':' .. redis.call('HGET', KEYS[1], 'generation') .. ':' .. ARGV[1]
local summary = KEYS[1] .. ':summary' .. of_user
local kept = redis.call('HMGET', summary, 'model', 'version')
if kept[1] ~= ARGV[2] or kept[2] ~= ARGV[4] then return end
local version = redis.call('HINCRBY', KEYS[1], 'summaries', 1)
redis.call('HSET', summary, 'summary', ARGV[3], 'version', version)
redis.call('LTRIM', KEYS[1] .. ':since' .. of_user, ARGV[5], -1)
"""
_DELETE = """
local about = redis.call('HMGET', KEYS[1], 'generation', 'generations')
local count = redis.call('LLEN', KEYS[1] .. ':' .. about[1] .. ':' .. ARGV[1])
for generation = 1, about[2] do
  for _, kind in ipairs({'', ':summary', ':since'}) do
    redis.call('DEL', KEYS[1] .. kind .. ':' .. generation .. ':' .. ARGV[1])
  end
  redis.call('SREM', KEYS[1] .. ':' .. generation, ARGV[1])
end
return count
"""
_SWITCH = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 'another one is filling the store' end
local current = redis.call('HGET', KEYS[1], 'generation')
if ARGV[2] == '' and redis.call('SCARD', KEYS[1] .. ':' .. current) > 0 then
  return 'interactions came meanwhile'
end
redis.call('HSET', KEYS[1], 'generation', ARGV[1])
return ''
"""
_HOLD = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('EXPIRE', KEYS[1], ARGV[2])
"""
"""With 0 seconds it deletes the key."""
_CURRENT = ""
FILLING = f"{ABOUT}:filling"
"""Has the generation that is being filled, and goes by itself where that has stopped."""
_FILLING_SECONDS = 60
_SOME = 1_000
"""Users of whom their keys' type is seen."""


def shown_address(address: str) -> str:
    """Say where a Redis server is, without what opens it.

    >>> shown_address("redis://me:secret@10.0.0.7:6379/0?password=secret")
    'redis://10.0.0.7:6379/0'
    """
    scheme, _, rest = address.partition("://")
    location = rest.partition("?")[0]
    host, slash, path = location.partition("/") if scheme != "unix" else ("", "", location)
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.rpartition('@')[2]}"


def _texts(interactions: Sequence[Interaction]) -> list[str]:
    return [text for i in interactions for text in (i.user, as_text(i.time), i.item)]


class RedisStore(HistoryStore):
    """See :class:`~merlin_sim.serving.histories.store.HistoryStore`."""

    def __init__(self, address: str, keep: int | None, create: bool, later: bool = False) -> None:
        self.shown = shown_address(address)
        try:
            import redis
        except ImportError as error:
            raise StoreError(
                f"{self.shown}: needs the package redis: run `make setup` in your clone of "
                "merlin-sim, or `pip install -e '.[redis]'` there."
            ) from error
        self._errors_of_redis = (redis.RedisError, ValueError, OSError)
        self.keep: int | None = None
        self._breaker = Breaker(self.shown)
        with self._errors():
            self._redis = self._client(redis, address, PATIENCE_SECONDS, retries=0)
            self._append = self._redis.register_script(_APPEND)
            self._switch = self._redis.register_script(_SWITCH)
            self._delete = self._redis.register_script(_DELETE)
            self._hold = self._redis.register_script(_HOLD)
            reading = self._client(redis, address, READ_SECONDS, retries=1)
            self._read = reading.register_script(_READ)
            self._read_summed = reading.register_script(_READ_SUMMED)
            self._keep_summary = reading.register_script(_KEEP_SUMMARY)
            served = self._client(redis, address, APPEND_SECONDS, retries=0)
            self._append_served = served.register_script(_APPEND)
        if not later:
            self._open(keep, create)

    @staticmethod
    def _client(redis: Any, address: str, seconds: float, retries: int) -> Any:
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        # A connection that was closed while it was idle is made anew without a retry. One that
        # breaks later may have had its command run: what appends is not sent again. After a
        # time-out nothing is.
        again = Retry(NoBackoff(), retries, supported_errors=(redis.ConnectionError,))
        return redis.Redis.from_url(
            address, decode_responses=True, socket_timeout=seconds,
            socket_connect_timeout=seconds, retry=again,
        )  # fmt: skip

    def _open(self, keep: int | None, create: bool) -> None:
        with self._errors():
            if create:
                make = self._redis.register_script(_MAKE)
                make(keys=[ABOUT], args=[FORMAT, "" if keep is None else keep])
            about = self._redis.hgetall(ABOUT)
        if not about:
            raise StoreError(f"{self.shown}: no store there: `merlin-sim histories load` makes it.")
        self._check_format(about.get("format"))
        self.keep = int(about["keep"]) if "keep" in about else None
        if keep not in (None, self.keep):
            raise StoreError(
                f"{self.shown}: was made to keep {self.keep or 'all'} interactions of a user, "
                f"received {keep}."
            )

    def _check_format(self, found: str | None) -> None:
        if found != str(FORMAT):
            raise StoreError(f"{self.shown}: expected a store of form {FORMAT}, found {found}.")

    def append(self, interactions: Sequence[Interaction]) -> None:
        """See HistoryStore."""
        with self._breaker, self._errors():
            self._append_served(keys=[ABOUT], args=[_CURRENT, *_texts(interactions)])

    def read_all(self, users: Sequence[str], newest: int) -> list[History | StoreError]:
        """See Reading; one round trip for all users."""
        if newest < 1:
            return [History([], []) for _ in users]
        try:
            with self._breaker, self._errors():
                form, *texts = self._read(keys=[ABOUT], args=[newest, *users])
            self._check_format(form)
        except StoreError as error:
            return [error for _ in users]
        return [self._history(user, text) for user, text in zip(users, texts, strict=True)]

    def _history(self, user: str, text: str) -> History | StoreError:
        try:
            entries = [entry.split(" ", 1) for entry in text.split("\n") if entry]
            times, items = ([entry[index] for entry in entries] for index in (0, 1))
            return History(json.loads(f"[{','.join(items)}]"), json.loads(f"[{','.join(times)}]"))
        except (ValueError, IndexError) as error:
            return StoreError(f"{self.shown}: the history of {user:.60} is none: {error}.")

    def read_summed(
        self, users: Sequence[str], newest: int, model: str
    ) -> list[SummedHistory | StoreError]:
        """See Reading; one round trip for all users."""
        try:
            with self._breaker, self._errors():
                form, *texts = self._read_summed(keys=[ABOUT], args=[newest, model, *users])
            self._check_format(form)
        except StoreError as error:
            return [error for _ in users]
        return [
            self._summed(user, *texts[4 * index : 4 * index + 4])
            for index, user in enumerate(users)
        ]

    def _summed(
        self, user: str, newest: str, version: str, summary: str, since: str
    ) -> SummedHistory | StoreError:
        history = self._history(user, newest)
        if isinstance(history, StoreError):
            return history
        if not version:
            return SummedHistory(history, None, history.items, None)
        try:
            items = json.loads(f"[{since}]")
            kept = base64.b64decode(summary) if summary else None
            return SummedHistory(history, kept, items, (int(version), len(items)))
        except ValueError as error:
            return StoreError(f"{self.shown}: the summary of {user:.60} is none: {error}.")

    def keep_summary(self, user: str, model: str, summary: bytes, mark: tuple[int, int]) -> None:
        """See Reading."""
        text = base64.b64encode(summary).decode()
        with self._breaker, self._errors():
            self._keep_summary(keys=[ABOUT], args=[user, model, text, *mark])

    def delete(self, user: str) -> int:
        """See HistoryStore."""
        with self._errors():
            return int(self._delete(keys=[ABOUT], args=[user]))

    def users(self) -> int:
        """See HistoryStore."""
        with self._errors():
            return int(self._redis.scard(f"{ABOUT}:{self._redis.hget(ABOUT, 'generation')}"))

    def some_users(self) -> list[str]:
        """See HistoryStore."""
        with self._errors():
            current = f"{ABOUT}:{self._redis.hget(ABOUT, 'generation')}"
            return [*self._redis.srandmember(current, _SOME)]

    @contextmanager
    def load(self, overwrite: bool) -> Iterator[Filling]:
        """See HistoryStore; others read what was there until the block ends.

        With ``overwrite`` what they append meanwhile goes with what was there.
        """
        if self.users() and not overwrite:
            raise StoreError(f"{self.shown}: expected an empty store, or `--overwrite`.")
        with self._errors():
            generation = str(self._redis.hincrby(ABOUT, "generations", 1))
            if not self._redis.set(FILLING, generation, nx=True, ex=_FILLING_SECONDS):
                raise StoreError(f"{self.shown}: another one is filling the store.")
        try:
            with self._errors():
                self._clear_others(generation)  # what was left by one that was killed
            yield _NewGeneration(self, generation)
            with self._errors():
                overwriting = "1" if overwrite else ""
                keys = [ABOUT, FILLING]
                if problem := self._switch(keys=keys, args=[generation, overwriting]):
                    raise StoreError(f"{self.shown}: {problem}; nothing was loaded.")
        finally:
            with self._errors():
                self._clear_others(generation)
                self._holds(generation, 0)

    def fill(self, generation: str, interactions: Sequence[Interaction]) -> None:
        """Append to a generation that will be read when it is whole."""
        with self._errors():
            if not self._holds(generation):
                raise StoreError(
                    f"{self.shown}: filling it stood still for more than {_FILLING_SECONDS} s, so "
                    "that another one may be filling it; nothing was loaded."
                )
            self._append(keys=[ABOUT], args=[generation, *_texts(interactions)])

    def close(self) -> None:
        """See HistoryStore."""
        for client in (self._redis, self._read.registered_client,
                       self._append_served.registered_client):  # fmt: skip
            client.close()

    def _holds(self, generation: str, seconds: int = _FILLING_SECONDS) -> bool:
        """Return whether it is the one that is being filled; it stays so for as long."""
        return bool(self._hold(keys=[FILLING], args=[generation, seconds]))

    def _clear_others(self, own: str) -> None:
        """Remove all generations but the one that is read: older ones, and what was given up.

        Those of others only as long as ``own`` is the one that is being filled.
        """
        current, made = self._redis.hmget(ABOUT, "generation", "generations")
        for other in (own, *map(str, range(1, int(made) + 1))):
            users = f"{ABOUT}:{other}"
            while other != current and (names := self._redis.srandmember(users, 1000)):
                if not self._holds(own) and other != own:
                    return
                kinds = ("", ":summary", ":since")
                self._redis.unlink(
                    *(f"{ABOUT}{kind}:{other}:{name}" for name in names for kind in kinds)
                )
                self._redis.srem(users, *names)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._errors_of_redis as error:
            raise StoreError(f"{self.shown}: {error}.") from error


class _NewGeneration:
    """What is not read yet."""

    def __init__(self, store: RedisStore, generation: str) -> None:
        self.store, self.generation = store, generation

    def append(self, interactions: Sequence[Interaction]) -> None:
        """See Filling."""
        self.store.fill(self.generation, interactions)


FIRST_SECONDS, MOST_SECONDS = 1.0, 15.0
"""How long it is left alone after it failed once, and at most after it failed again and again."""


class Breaker:
    """Lets calls through as long as they succeed; use as a context manager around each.

    After a failure calls are refused at once for a while. Then one is let through: where it
    succeeds all are again, where it fails they are refused twice as long.
    """

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock = what, clock
        self._lock = threading.Lock()
        self._pause = 0.0
        """Seconds for which it is left alone after a failure; 0 where the last call succeeded."""
        self._until = 0.0
        """When the next call is let through."""

    def __enter__(self) -> None:
        with self._lock:
            now = self._clock()
            if self._pause and now < self._until:
                raise StoreError(
                    f"{self._what}: did not answer; it is asked again in {self._until - now:.1f} s."
                )
            if self._pause:
                self._until = now + self._pause  # this call tries, others wait for what it finds

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._lock:
            if error is None:
                self._pause = 0.0
            elif isinstance(error, StoreError):
                self._pause = min(2 * self._pause or FIRST_SECONDS, MOST_SECONDS)
                self._until = self._clock() + self._pause
