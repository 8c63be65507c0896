"""SIGTERM and SIGINT: finish the step, save, and leave with an exit code of their own."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

from ..schemas.exceptions import MerlinSimError

EXIT_CODE = 75
"""EX_TEMPFAIL: the run was stopped on request and can be gone on with."""


class Interrupted(MerlinSimError):
    """The run was asked to stop, and did so after saving."""

    exit_code = EXIT_CODE


class StopRequest:
    """Notes SIGTERM and SIGINT while it is active; the second signal ends the process as usual."""

    def __init__(self) -> None:
        self.received: str | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> StopRequest:
        """Begin to listen."""
        for name in (signal.SIGTERM, signal.SIGINT):
            self._before[name] = signal.signal(name, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the signals back."""
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        """Tell whether a stop was asked for."""
        return self.received is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]
