"""The Tritons of a server: one that answers, one that stands by, and one of the next version.

Whatever happens to the one that answers, another replaces it: it is started, prepared and
watched in the same way, and gets requests when it is ready. A version is changed by that, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ...foundation.exceptions import MerlinSimError
from ..versions import ServedVersion
from .replica import Replica
from .triton_process import ServerError

MOST_STARTS = 5
"""Starts that may fail one after the other: on a loaded machine Triton's Python backend may find a
lock in shared memory broken (``boost::interprocess::lock_exception``)."""
MOST_EXITS = 3
"""The same where Triton ends by itself: it says why, and says the same again as a rule."""
PAUSE_SECONDS = 30.0
"""After that many, as long as another one answers, the next start waits."""
LOOKS_EVERY = 0.5
"""Seconds between two looks at which version should be served."""


@dataclass
class Replicas:
    """Sees that one Triton answers, with the version that should be served.

    Making one starts the first.
    """

    current: Callable[[], ServedVersion]
    """Says what should be served now."""
    make: Callable[[ServedVersion], Replica]
    switch: Callable[[Replica | None], None]
    """Called with which one answers from now on; None for none."""
    say: Callable[[str], None]
    has_standby: bool
    """Whether one more is kept ready."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """Start the first."""
        self.serving = self.current()
        self.active: Replica | None = None
        self.standby: Replica | None = self.make(self.serving)
        self._loading: tuple[ServedVersion, Replica] | None = None
        self._refused: ServedVersion | None = None
        self._problem = ""
        self._failures = 0
        self._loads_failed = 0
        self._next_start = self._looked = self.clock()
        self._ending: list[threading.Thread] = []

    def look(self) -> None:
        """See what has happened, and do what is to be done about it."""
        if self.active is not None and self.active.problem is not None:
            self._drop_active(self.active)
        if self.standby is not None and self.standby.problem is not None:
            self._drop_standby(self.standby)
        if self._loading is not None:
            self._look_at(*self._loading)
        is_prepared = self.standby is not None and self.standby.is_ready
        if self.active is not None and self.active.has_answered and is_prepared:
            self._failures = 0
        if self.active is None and self.standby is not None and self.standby.is_ready:
            self._activate(self.standby)
            self.standby = None
        self._look_for_version()
        self._start_another()

    def stop(self) -> None:
        """End the others, and let the one that answers answer what it has in hand."""
        for other in (self.standby, self._loading and self._loading[1]):
            if other is not None:
                other.kill()
        if self.active is not None:
            self.active.end()
        for thread in self._ending:
            thread.join()
        self.active = self.standby = self._loading = None

    def _activate(self, replica: Replica) -> None:
        self.active = replica
        self.switch(replica)

    def _drop_active(self, replica: Replica) -> None:
        self.active = None
        self.switch(None)
        how = "the one that stands by answers" if self.standby is not None else "starting another"
        self.say(f"{replica.problem}, unexpectedly: {how}")
        self._in_background(replica.kill)
        # One that never answered anybody is no better than one that never started.
        self._failures = 0 if replica.has_answered else self._failures + 1
        self._give_up_if_it_is_enough(replica, MOST_STARTS)

    def _drop_standby(self, replica: Replica) -> None:
        self.standby = None
        self._failures += 1
        self._in_background(replica.kill)
        most = MOST_STARTS if replica.is_worth_another else MOST_EXITS
        self._give_up_if_it_is_enough(replica, most)
        if self._failures >= most:
            self._next_start = self.clock() + PAUSE_SECONDS
        self.say(f"{replica.problem}: starting it again ({self._failures + 1} of {most})")

    def _give_up_if_it_is_enough(self, replica: Replica, most: int) -> None:
        others = (self.active, self.standby, self._loading)
        if self._failures >= most and all(other is None for other in others):
            raise ServerError(
                f"{replica.problem}, {self._failures} times: it is not started again (its output "
                "stands above; --verbose lets it say more)."
            )

    def _start_another(self) -> None:
        is_needed = self.active is None or (self.has_standby and self._loading is None)
        if self.standby is not None or not is_needed:
            return
        if self.clock() >= self._next_start:
            try:
                self.standby = self.make(self.serving)
            except (MerlinSimError, OSError) as error:
                self._next_start = self.clock() + PAUSE_SECONDS
                self.say(f"no other can be started: {error}")

    def _look_for_version(self) -> None:
        now = self.clock()
        if self._loading is not None or self.active is None or now - self._looked < LOOKS_EVERY:
            return
        self._looked = now
        try:
            current = self.current()
        except MerlinSimError as error:
            if str(error) != self._problem:
                self.say(f"{error}\nversion {self.serving.number} goes on answering")
            self._problem = str(error)
            return
        self._problem = ""
        if current == self.serving:
            self._refused = None
        elif current != self._refused:
            self._loads_failed = 0
            self._begin(current)

    def _begin(self, new: ServedVersion) -> None:
        try:
            replica = self.make(new)
        except (MerlinSimError, OSError) as error:
            self._refuse(new, str(error))
            return
        answering = ""
        if self.active is not None:
            self._kill_standby()  # of memory two are enough
            answering = f"; version {self.serving.number} answers"
        self.say(f"loading version {new.number}{answering}")
        self._loading = new, replica

    def _kill_standby(self) -> None:
        if self.standby is not None:
            self._in_background(self.standby.kill)
            self.standby = None

    def _look_at(self, version: ServedVersion, replica: Replica) -> None:
        if replica.problem is None and not replica.is_ready:
            return
        if not self._is_current(version):
            self._loading = None
            self._in_background(replica.kill)
            self.say(f"version {version.number} is no longer the current one{self._goes_on('; ')}")
        elif replica.problem is not None:
            self._loading = None
            self._in_background(replica.kill)
            self._loads_failed += 1
            if replica.is_worth_another and self._loads_failed < MOST_STARTS:
                self.say(f"{replica.problem}: version {version.number} is tried again")
                self._begin(version)
            else:
                self._refuse(version, replica.problem)
        else:
            before, last = self.serving, self.active
            self.serving, self._loading, self._refused = version, None, None
            self._failures = 0
            self._kill_standby()  # it is of the version before
            self._activate(replica)
            if last is not None:
                self._in_background(last.end)
            self.say(f"version {self.serving.number} answers, in place of {before.number}")

    def _is_current(self, version: ServedVersion) -> bool:
        """Return whether it is still to be served: as far as is known, if nobody can say.

        Its canary may be another one: what is loaded answers, and that is followed then.
        """
        try:
            current = self.current()
        except MerlinSimError:
            return True
        return (current.servable, current.version) == (version.servable, version.version)

    def _goes_on(self, before: str) -> str:
        """Say which version goes on answering, if any does."""
        number = self.serving.number
        return "" if self.active is None else f"{before}version {number} goes on answering"

    def _refuse(self, new: ServedVersion, reason: str) -> None:
        self._refused = new
        goes_on = self._goes_on("\n")
        self.say(f"version {new.number} cannot be served: {reason}{goes_on}")

    def _in_background(self, work: Callable[[], object]) -> None:
        self._ending = [thread for thread in self._ending if thread.is_alive()]
        thread = threading.Thread(target=work, name="end of a replica")
        thread.start()
        self._ending.append(thread)
