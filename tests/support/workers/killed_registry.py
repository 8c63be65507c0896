"""Changes registries in processes that are killed before each call that changes a file system.

    python killed_registry.py DIRECTORY

Change number n begins with what the changes before it left; the process that is killed before its
m-th such call works in DIRECTORY/n-m. DIRECTORY/whole is what all of them leave undisturbed.
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import sys
from pathlib import Path

from killed_saves import KILLED, kill_before

if __name__ == "__main__":
    from merlin_sim.foundation.process_wide import hide_tensorflow

    hide_tensorflow()  # each process is forked from this one, which is small without it

from merlin_sim.deployment.registry.registry import Registry  # noqa: E402

CHANGES = [
    lambda registry, servables: registry.add(servables / "a"),
    lambda registry, servables: registry.promote(1),
    lambda registry, servables: registry.add(servables / "b"),
    lambda registry, servables: registry.promote(2),
    lambda registry, servables: registry.promote(1),
    lambda registry, servables: registry.rollback(),
    lambda registry, servables: (registry.add(servables / "a"), registry.promote(3)),
    lambda registry, servables: registry.prune(1),
]
STATES = [
    ([], []),
    ([1], []),
    ([1], [1]),
    ([1, 2], [1]),
    ([1, 2], [1, 2]),
    ([1, 2], [1, 2, 1]),
    ([1, 2], [1, 2]),
    ([1, 2, 3], [1, 2, 3]),
    ([2, 3], [2, 3]),
]
"""What there is before the first change and after each: versions, and those that were current."""


def main() -> None:
    directory = Path(sys.argv[1])
    servables, whole = directory / "servables", directory / "whole"
    Registry(directory / "first").add(servables / "a")  # what comes first takes twice as long
    gc.freeze()
    for number, change in enumerate(CHANGES):
        for call in itertools.count(1):
            place = directory / f"{number}-{call}"
            process = os.fork()
            if process == 0:
                if whole.exists():
                    shutil.copytree(whole, place, symlinks=True)
                kill_before(call)
                os.close(os.open(directory / "begun", os.O_WRONLY | os.O_CREAT))
                change(Registry(place), servables)
                os._exit(0)
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            if code == 0:
                shutil.rmtree(place)
                break
            assert code == KILLED, code
        change(Registry(whole), servables)


if __name__ == "__main__":
    main()
