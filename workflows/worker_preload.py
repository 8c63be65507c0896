"""Loaded by each worker of a local cluster before anything else.

Merlin imports TensorFlow wherever it is installed: three seconds and a quarter of a gigabyte per
worker, for nothing, as preprocessing never makes a tensor. Here the import is told that there is
none. What Merlin then warns of (other frameworks that are missing as well) is of no use either.
"""

from __future__ import annotations

import sys
import warnings


def dask_setup(worker: object) -> None:
    """Run by Dask in the worker's process."""
    warnings.simplefilter("ignore")
    sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type]
