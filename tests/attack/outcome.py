"""How a case ended, in one word; what is neither read nor refused is a failure."""

from __future__ import annotations

from dataclasses import dataclass

READ = "read"
REFUSED = "refused"
NO_TRUTH = "no truth"
"""Arrow itself did not survive the file, so that nothing can be compared."""
GOOD = (READ, REFUSED, NO_TRUTH)


@dataclass(frozen=True)
class Outcome:
    """The end of one case."""

    kind: str
    """One of :data:`GOOD`, or the name of a failure."""

    said: str = ""
    """The message, the difference, the traceback's last lines."""

    @property
    def failed(self) -> bool:
        return self.kind not in GOOD
