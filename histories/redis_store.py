"""Histories on a Redis server, where one machine's file does not do. Needs the extra `redis`.

A user's history is a list, an interaction its time and its item as JSON. What has to happen at once
is a script, which Redis runs alone; so it is one server (with replicas), not a cluster. A store is
filled under a new number, its generation, and then takes the old one's place at once.

Redis answers when an append is in its memory. That a server which was killed has it again is a
matter of its own configuration: `appendonly yes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .interaction import Interaction, as_text
from .store import FORMAT, Filling, History, StoreError

ABOUT = "merlin-sim:histories"
"""The key of what is known of a store; all its keys begin so. One store has one of the server's
databases."""
PATIENCE_SECONDS = 30.0
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
for place = 2, #ARGV, 3 do
  local user, time, item = ARGV[place], ARGV[place + 1], ARGV[place + 2]
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
  redis.call('SADD', KEYS[1] .. ':' .. generation, user)
end
"""
_READ = """
local generation = redis.call('HGET', KEYS[1], 'generation')
local history = KEYS[1] .. ':' .. generation .. ':' .. ARGV[1]
return table.concat(redis.call('LRANGE', history, -ARGV[2], -1), '\\n')
"""
"""One text: a thousand small answers take Python ten times as long."""
_TAKE_PLACE = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 'another one is filling the store' end
local current = redis.call('HGET', KEYS[1], 'generation')
if ARGV[2] == '' and redis.call('SCARD', KEYS[1] .. ':' .. current) > 0 then
  return 'interactions came meanwhile'
end
redis.call('HSET', KEYS[1], 'generation', ARGV[1])
return ''
"""
_CURRENT = ""
FILLING = f"{ABOUT}:filling"
"""Has the generation that is being filled, and goes by itself where that has stopped."""
_FILLING_SECONDS = 60


class RedisStore:
    """See :class:`~merlin_sim.histories.store.HistoryStore`.

    Args:
        address: Where the server is.
        keep: See :func:`~merlin_sim.histories.open_store.open_store`.
        create: The same.
    """

    def __init__(self, address: str, keep: int | None, create: bool) -> None:
        """Connect."""
        try:
            import redis
        except ImportError as error:
            raise StoreError(
                f"{address}: needs the package redis: pip install 'merlin-sim[redis]'."
            ) from error
        self.address = address
        self._errors_of_redis = (redis.RedisError, ValueError)
        with self._errors():
            self._redis: Any = redis.Redis.from_url(
                address, decode_responses=True, socket_timeout=PATIENCE_SECONDS
            )
            self._append = self._redis.register_script(_APPEND)
            self._read = self._redis.register_script(_READ)
            self._take_place = self._redis.register_script(_TAKE_PLACE)
            if create:
                make = self._redis.register_script(_MAKE)
                make(keys=[ABOUT], args=[FORMAT, "" if keep is None else keep])
            about = self._redis.hgetall(ABOUT)
        if not about:
            raise StoreError(f"{address}: no store there: `merlin-sim histories load` makes it.")
        if about.get("format") != str(FORMAT):
            raise StoreError(
                f"{address}: expected a store of form {FORMAT}, found {about.get('format')}."
            )
        self.keep = int(about["keep"]) if "keep" in about else None
        if keep not in (None, self.keep):
            raise StoreError(
                f"{address}: was made to keep {self.keep or 'all'} interactions of a user, "
                f"received `keep` = {keep}."
            )

    def append(self, interactions: Sequence[Interaction]) -> None:
        """See HistoryStore."""
        self._append_to(_CURRENT, interactions)

    def _append_to(self, generation: str, interactions: Sequence[Interaction]) -> None:
        texts = [text for i in interactions for text in (i.user, as_text(i.time), i.item)]
        with self._errors():
            self._append(keys=[ABOUT], args=[generation, *texts])

    def read(self, user: str, newest: int) -> History:
        """See HistoryStore."""
        if newest < 1:
            return History([], [])
        with self._errors():
            text = self._read(keys=[ABOUT], args=[user, newest])
        entries = [entry.split(" ", 1) for entry in text.split("\n") if entry]
        times, items = ([entry[place] for entry in entries] for place in (0, 1))
        return History(json.loads(f"[{','.join(items)}]"), json.loads(f"[{','.join(times)}]"))

    def users(self) -> int:
        """See HistoryStore."""
        with self._errors():
            return int(self._redis.scard(f"{ABOUT}:{self._redis.hget(ABOUT, 'generation')}"))

    @contextmanager
    def load(self, overwrite: bool) -> Iterator[Filling]:
        """See HistoryStore; others read what was there until the block ends.

        With ``overwrite`` what they append meanwhile goes with what was there.
        """
        if self.users() and not overwrite:
            raise StoreError(f"{self.address}: expected an empty store, or `--overwrite`.")
        with self._errors():
            generation = str(self._redis.hincrby(ABOUT, "generations", 1))
            if not self._redis.set(FILLING, generation, nx=True, ex=_FILLING_SECONDS):
                raise StoreError(f"{self.address}: another one is filling the store.")
        try:
            with self._errors():
                self._clear_others()  # what was left by one that was killed
            yield _NewGeneration(self, generation)
            with self._errors():
                overwriting = "1" if overwrite else ""
                keys = [ABOUT, FILLING]
                if problem := self._take_place(keys=keys, args=[generation, overwriting]):
                    raise StoreError(f"{self.address}: {problem}; nothing was loaded.")
        finally:
            with self._errors():
                if self._redis.get(FILLING) == generation:
                    self._clear_others()
                    self._redis.delete(FILLING)

    def fill(self, generation: str, interactions: Sequence[Interaction]) -> None:
        """Append to a generation that will be read when it is whole."""
        self._append_to(generation, interactions)
        with self._errors():
            self._redis.expire(FILLING, _FILLING_SECONDS)

    def close(self) -> None:
        """See HistoryStore."""
        self._redis.close()

    def _clear_others(self) -> None:
        """Remove all generations but the one that is read: older ones, and what was given up."""
        generation, made = self._redis.hmget(ABOUT, "generation", "generations")
        for other in range(1, int(made) + 1):
            users = f"{ABOUT}:{other}"
            if str(other) == generation:
                continue
            while names := self._redis.srandmember(users, 1000):
                self._redis.unlink(*(f"{users}:{name}" for name in names))
                self._redis.srem(users, *names)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._errors_of_redis as error:
            raise StoreError(f"{self.address}: {error}.") from error


class _NewGeneration:
    """What is not read yet."""

    def __init__(self, store: RedisStore, generation: str) -> None:
        self.store, self.generation = store, generation

    def append(self, interactions: Sequence[Interaction]) -> None:
        """See Filling."""
        self.store.fill(self.generation, interactions)
