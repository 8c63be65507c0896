"""Changes registries in processes that are killed before each call that changes a file system.

    python killed_registry.py DIRECTORY

Process number n works in DIRECTORY/n and is killed before its n-th such call; how many changes were
done by then is the length of DIRECTORY/n.done. The last process is not killed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from killed_saves import KILLED, kill_before

from merlin_sim.foundation.process_wide import hide_tensorflow

if __name__ == "__main__":
    hide_tensorflow()  # each process is forked from this one, which is small without it

from merlin_sim.deployment.registry.registry import Registry  # noqa: E402


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
    for call in range(1, 1000):
        process = os.fork()
        if process == 0:
            kill_before(call)
            done = os.open(directory / f"{call}.done", os.O_WRONLY | os.O_CREAT)
            for _ in changes(Registry(directory / str(call)), directory / "servables"):
                os.write(done, b".")
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code == 0:
            return
        assert code == KILLED, code
    raise AssertionError("no end")


if __name__ == "__main__":
    main()
