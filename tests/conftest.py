"""What every test shares: quiet third parties, few threads, a small dataset."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("OMP_NUM_THREADS", "2")
# LLVM's optimizations of so small programs cost far more than they save.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

from merlin_sim.foundation.process_wide import (  # noqa: E402
    collect_less_often,
    silence_third_party_noise,
)

collect_less_often()
silence_third_party_noise()
# Tests kill processes and never the machine: nothing has to reach the disk.
os.fsync = lambda descriptor: None
# How long an example takes is the machine's, and what else runs there: nothing of it is a fault.
# The suite has the same examples each time; `make attack` has many more, and others in each round.
MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", MACHINE, derandomize=True, max_examples=50)
settings.register_profile("attack", MACHINE, max_examples=500, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files with the largest share of slow tests first: no worker ends long after another.

    Within a file, and among files of one share, the order stays as drawn. Where Horovod was left
    out, the tests that need it are skipped.
    """
    if importlib.util.find_spec("horovod") is None:
        skip = pytest.mark.skip(reason="Horovod is not installed here: HOROVOD=1 make setup")
        for item in filter(lambda item: item.get_closest_marker("horovod"), items):
            item.add_marker(skip)
    tests = Counter(item.path for item in items)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path] / tests[item.path])


def pytest_collection_finish() -> None:
    """Leave what the imports made out of every collection of garbage to come.

    TensorFlow and Merlin are a million objects that never go, and were looked at again and again.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def eagerly() -> Iterator[None]:
    """Have nothing traced: of few steps the graph would take longer to make than they do."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def sim_dataset(tmp_path_factory) -> Path:
    """A small dataset directory that SIM can train on."""
    from small_logs import write_sim_dataset

    return write_sim_dataset(tmp_path_factory.mktemp("data") / "dataset")
