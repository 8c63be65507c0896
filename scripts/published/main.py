"""The published ``main.py``: its command lines run ``merlin-sim train`` or ``inference``.

The log is in the published format, unless ``--log_format`` says otherwise.
"""

from __future__ import annotations

import sys

from merlin_sim.scripts.main import main

if __name__ == "__main__":
    # `--mode` chooses between training and inference, as it does there.
    given = ["--helpfull" if word == "--help" else word for word in sys.argv[1:]]
    sys.argv[1:] = ["train", "--log_format", "dllogger", "--preset", "published", *given]
    main()
