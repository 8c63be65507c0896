"""Workers of a local cluster that are forked from a process that has imported what they need.

That process imports this module, once for all clusters of a process of tests. Dask by itself starts
each worker afresh, which imports NVTabular: three seconds, fourteen times where a test kills so
many. Commands in a process of their own, and the running cluster of test_schedulers.py, start
workers as Dask does.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from multiprocessing import forkserver, get_context
from unittest import mock

if os.environ.pop("FORKED_WORKERS", None):
    from merlin_sim.foundation.process_wide import dask_setup

    dask_setup(None)
    import distributed  # noqa: F401
    import nvtabular  # noqa: F401

    from merlin_sim.workflows.preprocess import preprocess_log  # noqa: F401

    gc.freeze()  # or the first collection in each worker would copy every page


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """Have Dask fork the workers that it starts within the block."""
    import dask
    from distributed.utils import get_mp_context

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context()  # names what Dask would have imported there, once
        get_context("forkserver").set_forkserver_preload([__name__])
        with mock.patch.dict(os.environ, FORKED_WORKERS="1", PYTHONPATH=os.path.dirname(__file__)):
            forkserver.ensure_running()
        yield
