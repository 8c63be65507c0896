from __future__ import annotations

import io

from rich.console import Console

from merlin_sim.foundation.progress import Silence, Terminal


def narrate(terminal: bool) -> str:
    narrator = Terminal()
    narrator.console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with narrator.phase("reading interactions", 10) as report:
        report(4, 1_000)
        report(6, 500)
    narrator.say("[not] markup")
    return narrator.console.file.getvalue()


def test_a_log_gets_one_plain_line_per_phase_and_a_terminal_rows_and_time_left():
    first, second = narrate(terminal=False).splitlines()
    assert first.split() == ["reading", "interactions", "1,500", "rows", "0.0", "s"]
    assert second == "[not] markup"
    seen = narrate(terminal=True)
    for shown in ("reading interactions", "100%", "1,500 rows", "left"):
        assert shown in seen
    with Silence().phase("reading", 3) as report:
        report(1)
        report(2, 5)
    Silence().say("nothing")
