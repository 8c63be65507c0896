"""The one place where other libraries' noise is silenced for the person at a terminal."""

from __future__ import annotations

import logging
import os
import warnings


def silence_third_party_noise() -> None:
    """Turn off start-up chatter of TensorFlow and Merlin; what they say of errors still shows.

    To be called before TensorFlow is imported. Set ``TF_CPP_MIN_LOG_LEVEL=0`` to hear
    TensorFlow again, ``PYTHONWARNINGS=default`` for Python's warnings.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Merlin Models imports names that TensorFlow has moved; TensorFlow says so on every start.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    if "PYTHONWARNINGS" in os.environ:
        return
    for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
        warnings.filterwarnings("ignore", category=category)
    # merlin.dtypes looks for every framework it could map to, merlin.core for a GPU.
    warnings.filterwarnings("ignore", message=".*dtype mappings did not load successfully.*")
    warnings.filterwarnings("ignore", module=r"merlin\..*")
