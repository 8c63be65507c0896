"""The package changes nothing of the process that imports it, and Merlin is quiet in use."""

from __future__ import annotations

import subprocess
import sys
import warnings

from merlin_sim.foundation.process_wide import quiet_merlin

AS_BEFORE = """
import logging, os, sys, warnings
before = list(warnings.filters), list(sys.meta_path), dict(os.environ)
import merlin_sim
assert (list(warnings.filters), list(sys.meta_path), dict(os.environ)) == before
assert logging.getLogger("tensorflow").level == logging.NOTSET
assert not {"tensorflow", "merlin"} & set(sys.modules)
"""


def test_to_import_the_package_changes_nothing_of_the_process():
    subprocess.run([sys.executable, "-c", AS_BEFORE], check=True, timeout=60)


def test_in_use_merlin_alone_is_quiet():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with quiet_merlin():
            warnings.warn_explicit("its", UserWarning, "dataset.py", 1, module="merlin.io.dataset")
            warnings.warn("ours", stacklevel=1)
        warnings.warn_explicit("later", UserWarning, "dataset.py", 1, module="merlin.io.dataset")
    assert [str(warning.message) for warning in heard] == ["ours", "later"]
