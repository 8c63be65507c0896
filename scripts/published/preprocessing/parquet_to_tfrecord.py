"""The published ``parquet_to_tfrecord.py``: its command lines run ``merlin-sim data transcode``.

Training reads the parquet as it is; this is for those who read the TFRecord files.
"""

from __future__ import annotations

import sys

from merlin_sim.scripts.main import main

NAMES = {"--amazon_dataset_path": "--input", "--tfrecord_output_dir": "--output"}
"""Options that have other names here."""
DEFAULTS = ["--to", "tfrecord", "--number_of_user_features", "1", "--max_seq_len", "100"]
"""The published ones; what is given comes after them and wins."""


def translated(words: list[str]) -> list[str]:
    """Rename the options.

    >>> translated(["--amazon_dataset_path", "books", "--tfrecord_output_dir=records"])
    ['--input', 'books', '--output=records']
    """
    found = []
    for word in words:
        name, equals, value = word.partition("=")
        found.append(f"{NAMES.get(name, name)}{equals}{value}")
    return found


def missing(words: list[str]) -> list[str]:
    """List what must be given and is not.

    >>> missing(["--amazon_dataset_path", "books"])
    ['--tfrecord_output_dir']
    """
    given = {word.partition("=")[0] for word in words}
    return [] if {"-h", "--help"} & given else [name for name in NAMES if name not in given]


if __name__ == "__main__":
    if lacking := missing(sys.argv[1:]):
        sys.stderr.write(f"parquet_to_tfrecord.py: missing: {', '.join(lacking)}\n")
        sys.exit(2)
    sys.argv[1:] = ["data", "transcode", *DEFAULTS, *translated(sys.argv[1:])]
    main()
