"""horovodrun, which here takes for granted that Horovod was built with Gloo.

    python launched.py -np 2 --gloo -H localhost:2 COMMAND ...

It would start a process to ask, and that imports TensorFlow: a quarter of what a small launch
costs. With GRACE_SECONDS the ranks that it ends have so many, not five. All else is horovodrun's
own; test_run_model.py starts the program itself.
"""

from __future__ import annotations

import os
import sys

if __name__ != "launched":  # but also in the processes by which it starts the ranks
    from horovod.runner.common.util import safe_shell_exec

    safe_shell_exec.GRACEFUL_TERMINATION_TIME_S = int(os.environ.get("GRACE_SECONDS", 5))

if __name__ == "__main__":
    from horovod.runner import launch

    launch.gloo_built = lambda verbose=False: True
    sys.argv[0] = "horovodrun"
    sys.exit(launch.run_commandline())
