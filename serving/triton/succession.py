"""One version of a model after the other, in a server that answers all the while."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...foundation.exceptions import MerlinSimError
from ..scoring.versions import Canary
from ..servables.servable import Servable
from .generations import Generations

READY, FAILED = "READY", "UNAVAILABLE"
UNLOADED = "unloaded"
"""What Triton gives as the reason for a version that it served before."""
PERIOD = 0.5
"""Seconds between two looks."""
MOST_ENDS = 3
"""How often Triton may end while a version is loaded before that one is refused."""


class Wanted(NamedTuple):
    """What should be served."""

    version: int
    servable: Path
    canary: tuple[Canary, Path] | None = None
    """A version that some users meet, and its servable."""

    def __str__(self) -> str:
        """Name the version, and the other one where some users meet it."""
        if self.canary is None:
            return str(self.version)
        canary = self.canary[0]
        return f"{self.version} (version {canary.number} for {canary.share:g} of the users)"


Entries = Mapping[tuple[str, int], tuple[str, str]]
"""Model and version -> state and reason, as Triton tells them."""


@dataclass(frozen=True)
class Coming:
    """A version that Triton was told of."""

    wanted: Wanted
    generation: Path
    since: float
    before: Entries
    """What Triton said of all versions before it was told."""


class Succession:
    """Follows what should be served: the next version is loaded beside the one that answers.

    Triton loads a new version of a model in processes of its own, and lets go of the one before
    once all of the new one is ready: there is always one that answers, and whoever is in flight is
    answered by whom it was given to. A version that cannot be loaded changes nothing.

    Args:
        wanted: Says what should be served now.
        generations: Where the server finds its models.
        write: Writes the models of a servable, its version and its canary into a directory.
        states: Asks the server what it says of its models; nothing where it cannot be asked.
        models: The names of the models, all of which have to be ready.
        say: Told what happens, in sentences.
        patience: Seconds that a version has to be loaded.
        clock: Tells the time, in seconds.
    """

    def __init__(
        self,
        wanted: Callable[[], Wanted],
        generations: Generations,
        write: Callable[[Servable, Wanted, tuple[Canary, Servable] | None, Path], None],
        states: Callable[[], Entries],
        models: tuple[str, ...],
        say: Callable[[str], None],
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show the first version; the server is not started yet.

        Raises:
            MerlinSimError: Where there is none, or it is damaged.
        """
        self._wanted, self._generations, self._write = wanted, generations, write
        self._states, self._models, self._say = states, models, say
        self._patience, self._clock = patience, clock
        self.serving = wanted()
        self._generation = self._written(self.serving)
        self._generations.show(self._generation)
        self._coming: Coming | None = None
        self._refused: Wanted | None = None
        self._problem = ""
        self._ended_over: Wanted | None = None
        self._ends = 0
        self._looked = clock()

    def look(self) -> None:
        """See whether another version should be served, or whether it is served by now."""
        now = self._clock()
        if now - self._looked < PERIOD:
            return
        self._looked = now
        if self._coming is not None:
            self._look_at(self._coming, now)
            return
        try:
            wanted = self._wanted()
        except MerlinSimError as error:
            if str(error) != self._problem:
                self._say(f"{error}\nversion {self.serving.version} goes on answering")
            self._problem = str(error)
            return
        self._problem = ""
        if wanted == self.serving:
            self._refused = None
        elif wanted != self._refused:
            self._begin(wanted, now)

    def triton_ended(self) -> None:
        """Go back to the version that is served, where Triton ended while another was loaded.

        It is tried again, within bounds: a loaded machine may end Triton, and so may a version.
        """
        if self._coming is None:
            return
        wanted = self._take_back(self._coming)
        self._ends = self._ends + 1 if wanted == self._ended_over else 1
        self._ended_over = wanted
        if self._ends < MOST_ENDS:
            self._say(f"Triton ended while version {wanted.version} was loaded: it is tried again")
        else:
            self._refuse(wanted, f"Triton ended {self._ends} times while it was loaded")

    def _give_up(self, coming: Coming, reason: str) -> None:
        self._refuse(self._take_back(coming), reason)

    def _take_back(self, coming: Coming) -> Wanted:
        """Show the version that is served again."""
        self._coming = None
        self._generations.show(self._generation)
        self._generations.remove(coming.generation)
        return coming.wanted

    def _begin(self, wanted: Wanted, now: float) -> None:
        try:
            generation = self._written(wanted)
        except (MerlinSimError, OSError) as error:
            self._refuse(wanted, str(error))
            return
        self._say(f"loading version {wanted.version}; version {self.serving.version} answers")
        self._coming = Coming(wanted, generation, now, self._states())
        self._generations.show(generation)

    def _look_at(self, coming: Coming, now: float) -> None:
        states = self._states()
        keys = [(model, coming.wanted.version) for model in self._models]
        if all(states.get(key, ("",))[0] == READY for key in keys):
            before, self.serving = self.serving, coming.wanted
            self._generations.remove(self._generation)
            self._generation, self._coming, self._refused = coming.generation, None, None
            self._ended_over = None
            self._say(f"version {self.serving.version} answers, in place of {before.version}")
            return
        failed = [
            states[key][1]
            for key in keys
            # What it said before it was told is of another time.
            if key in states and states[key] != coming.before.get(key) and _failed(states[key])
        ]
        if failed:
            self._give_up(coming, failed[0])
        elif now - coming.since > self._patience:
            self._give_up(
                coming,
                f"it was not ready after {self._patience:.0f} s; if Triton stands still over it, "
                "no other version is loaded until `merlin-sim serve` is started again",
            )

    def _written(self, wanted: Wanted) -> Path:
        servable = Servable.open(wanted.servable)
        canary = None
        if wanted.canary is not None:
            canary = wanted.canary[0], Servable.open(wanted.canary[1])
        return self._generations.write(
            lambda directory: self._write(servable, wanted, canary, directory)
        )

    def _refuse(self, wanted: Wanted, reason: str) -> None:
        self._refused, self._ended_over = wanted, None
        self._say(
            f"version {wanted.version} cannot be served: {reason}\n"
            f"version {self.serving.version} goes on answering"
        )


def _failed(told: tuple[str, str]) -> bool:
    state, reason = told
    return state == FAILED and reason != UNLOADED


def states_of(host: str, port: int) -> Entries:
    """Ask a server for the state of all versions of all of its models."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("POST", "/v2/repository/index", b"{}", {"Connection": "close"})
        response = connection.getresponse()
        told: list[dict[str, Any]] = json.load(response) if response.status == 200 else []
        return {
            (one["name"], int(one["version"])): (one.get("state", ""), one.get("reason", ""))
            for one in told
            if one.get("version", "").isdigit()
        }
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
