"""How much is tried, and what comes of it: a result, or a message as the command line prints it."""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, event, settings
from hypothesis.control import currently_in_test_context
from hypothesis.stateful import RuleBasedStateMachine

from merlin_sim.foundation.exceptions import MerlinSimError


def share(percent: int, suite: int | None = None, **more: Any) -> settings:
    """So much of a profile's examples; of those that are always the same ones ``suite`` percent."""
    chosen = suite if suite and settings.default.derandomize else percent
    examples = max(1, settings.default.max_examples * chosen // 100)
    return settings(max_examples=examples, suppress_health_check=list(HealthCheck), **more)


class Answer(NamedTuple):
    """A result, or a refusal; and what was warned of on the way."""

    result: Any = None
    refusal: str | None = None
    warned: bool = False


def answer(function: Callable[..., Any], *arguments: Any, names: tuple[Any, ...]) -> Answer:
    """Call ``function``; a refusal has to name one of ``names``, and any other error is a fault."""
    result = refusal = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*arguments)
        except (MerlinSimError, OSError) as error:
            refusal = str(error)
            assert any(str(name) in refusal for name in names), f"no file is named: {refusal}"
        except (RecursionError, MemoryError) as error:  # the command line says so
            refusal = f"too large: {type(error).__name__}"
    warned = any(warning.category.__name__ == "DatasetWarning" for warning in caught)
    if currently_in_test_context():  # for the statistics; the other process has none
        event("read" if refusal is None else "refused")
    return Answer(result, refusal, warned)


class InFolder(RuleBasedStateMachine):
    """A machine with a folder of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._parent = tempfile.TemporaryDirectory(prefix="attack-")
        self.parent = Path(self._parent.name)

    def teardown(self) -> None:
        self._parent.cleanup()
