"""Runs commands of the command line, one after another, on every rank of one launch."""

from __future__ import annotations

import json
import sys

from in_process import run

if __name__ == "__main__":
    for words in json.loads(sys.argv[1]):
        run(*words)
