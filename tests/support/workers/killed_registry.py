"""Changes a registry, and keeps what a kill would leave of it at any moment.

    python killed_registry.py DIRECTORY

Before the n-th call that changes a file system the registry is copied to DIRECTORY/n: what a
process leaves that is killed there, as what it has not written by then is lost with it. How many
changes were done is the length of DIRECTORY/n.done.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from killed_saves import before_each_change

from merlin_sim.foundation.process_wide import hide_tensorflow

if __name__ == "__main__":
    hide_tensorflow()  # it starts sooner

from merlin_sim.serving.deployment.registry import Registry  # noqa: E402


def changes(registry: Registry, servables: Path):
    """Yield after each change what there is: versions, and those that were current."""
    yield [], []
    registry.add(servables / "a")
    yield [1], []
    registry.promote(1)
    yield [1], [1]
    registry.add(servables / "b")
    yield [1, 2], [1]
    registry.promote(2)
    yield [1, 2], [1, 2]
    registry.promote(1)
    yield [1, 2], [1, 2, 1]
    registry.rollback()
    yield [1, 2], [1, 2]
    registry.add(servables / "a")
    registry.promote(3)
    yield [1, 2, 3], [1, 2, 3]
    registry.prune(1)
    yield [2, 3], [2, 3]


def main() -> None:
    directory = Path(sys.argv[1])
    live = directory / "live"
    done = 0

    def keep(call: int) -> None:
        (directory / f"{call}.done").write_bytes(b"." * done)
        if live.exists():
            shutil.copytree(live, directory / str(call), symlinks=True)

    (directory / "first").touch()  # by which the calls are counted from 1
    before_each_change(keep)
    (directory / "first").open("w").close()
    for _ in changes(Registry(live), directory / "servables"):
        done += 1
    os._exit(0)  # what is changed at the end of a process does not count


if __name__ == "__main__":
    main()
