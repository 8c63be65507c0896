"""Clients that ask while something happens to their server."""

from __future__ import annotations

import threading
import time

from held_server import until


class Asking(threading.Thread):
    """Asks for one event after the other until its block ends; keeps what came and what was wrong.

    Args:
        ask: Gives the version that answers an event, and its score.
        events: Of one candidate each.
        expected: Their scores, by version.
        first: The index of the event before the first.
    """

    def __init__(self, ask, events, expected, first=0) -> None:
        super().__init__()
        self.ask, self.events, self.expected, self.index = ask, events, expected, first
        self.versions, self.wrong = [], []
        self.ending = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error) -> None:
        self.ending.set()
        self.join()

    def run(self) -> None:
        while not self.ending.wait(0.03):  # so that the server is not all that there is
            self.index = (self.index + 1) % len(self.events)
            try:
                version, score = self.ask(self.events[self.index])
            except Exception as error:
                self.wrong.append(repr(error))
                time.sleep(0.1)
                continue
            if abs(score - self.expected[version][self.index]) > 1e-5:
                self.wrong.append((version, self.index, score))
            self.versions.append(version)


def until_more_came(askings, count=5) -> list[int]:
    """Wait until each has more answers than so many; how many each had before."""
    before = [len(one.versions) for one in askings]
    pairs = [*zip(askings, before, strict=True)]
    until(lambda: all(len(one.versions) > had + count for one, had in pairs))
    return before
