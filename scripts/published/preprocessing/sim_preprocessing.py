"""The published ``sim_preprocessing.py``: its options are those of ``preprocess amazon-books``."""

from __future__ import annotations

import sys

from merlin_sim.scripts.main import main

if __name__ == "__main__":
    sys.argv[1:] = ["preprocess", "amazon-books", *sys.argv[1:]]
    main()
