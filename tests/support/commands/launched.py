"""horovodrun, which here takes for granted that Horovod was built with Gloo.

    python launched.py -np 2 --gloo -H localhost:2 COMMAND ...

It would start a process to ask, and that imports TensorFlow: a quarter of what a small launch
costs. All else is horovodrun's own; test_run_model.py starts the program itself.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from horovod.runner import launch

    launch.gloo_built = lambda verbose=False: True
    sys.argv[0] = "horovodrun"
    sys.exit(launch.run_commandline())
