"""Waits until all ranks have come, before Horovod does, which gives up without saying on whom.

Horovod's ranks meet while it initialises. One that comes HOROVOD_GLOO_TIMEOUT_SECONDS (30) after
another finds that gone: the first has aborted, with a signal and the name of a key. Here each rank
notes its coming with the launcher's rendezvous server, under a name of our own, and looks for the
others; so the wait can be long, and what is missing is named.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...foundation.exceptions import MerlinSimError

EXIT_CODE = 70
"""EX_SOFTWARE: another rank was lost, or never came."""
GLOO_TIMEOUT = "HOROVOD_GLOO_TIMEOUT_SECONDS"
NOTICE_SECONDS = 10.0
"""After so long a rank says that it waits, and for whom."""
POLL_SECONDS = 0.2
ANSWER_SECONDS = 5.0
"""After so long the server is asked again: its machine is loaded too."""
SCOPE = "merlin_sim_arrival"


class RanksMissing(MerlinSimError):
    """Not all ranks of the run started in time."""

    exit_code = EXIT_CODE


def lengthen_gloo_timeout(seconds: float, environ: dict[str, str] | None = None) -> None:
    """Let Horovod's own meeting take as long; one that the user has set stays.

    To be called before Merlin Models is imported, which initialises Horovod.
    """
    target = os.environ if environ is None else environ
    target.setdefault(GLOO_TIMEOUT, str(math.ceil(seconds)))


class Rendezvous(NamedTuple):
    """The launcher's key-value server, as far as it is needed here."""

    host: str
    port: int

    @classmethod
    def of_launcher(cls, environ: Mapping[str, str]) -> Rendezvous | None:
        """Find the server of ``horovodrun``; None where another launcher started the ranks."""
        host = environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")
        port = environ.get("HOROVOD_GLOO_RENDEZVOUS_PORT", "")
        return cls(host, int(port)) if host and port.isdigit() else None

    def arrive(self, rank: int) -> bool:
        """Note that a rank has come; False where the server was too busy to answer."""
        return self._ask("PUT", rank) == http.client.OK

    def has_arrived(self, rank: int) -> bool:
        """Return whether a rank is known to have come."""
        return self._ask("GET", rank) == http.client.OK

    def _ask(self, method: str, rank: int) -> int | None:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_SECONDS)
        with contextlib.closing(connection), contextlib.suppress(TimeoutError):
            body = b"1" if method == "PUT" else None
            connection.request(method, f"/{SCOPE}/{rank}", body)
            return connection.getresponse().status
        return None


def wait_for_ranks(
    seconds: float,
    environ: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when all ranks that ``horovodrun`` started have come here.

    Other launchers have ranks wait for one another themselves.
    """
    rendezvous = Rendezvous.of_launcher(environ)
    if rendezvous is None:
        return
    own = int(environ.get("HOROVOD_RANK", "0"))
    missing = set(range(int(environ.get("HOROVOD_SIZE", "1")))) - {own}
    end, notice = clock() + seconds, clock() + NOTICE_SECONDS
    noted = False
    try:
        while True:
            noted = noted or rendezvous.arrive(own)
            missing = {rank for rank in missing if not rendezvous.has_arrived(rank)}
            if noted and not missing:
                return
            if clock() > end:
                raise RanksMissing(
                    f"{_named(missing or {own})} did not start within {seconds:g} seconds of this "
                    "one. On a loaded machine a longer --start_timeout helps."
                )
            if clock() > notice:
                notice = math.inf
                print(
                    f"merlin-sim: waiting for {_named(missing or {own})}",
                    file=sys.stderr,
                    flush=True,
                )
            sleep(POLL_SECONDS)
    except (OSError, http.client.HTTPException) as error:
        raise RanksMissing(
            f"the launcher's rendezvous server at {rendezvous.host}:{rendezvous.port} does not "
            f"answer: {error}"
        ) from error


def _named(ranks: set[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, sorted(ranks)))}"
