"""Milliseconds of exchanging a big table's gradient between two ranks: its rows, or all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Start two ranks."""
    worker = Path(__file__).parent / "measuring/exchange_worker.py"
    launch = [str(Path(sys.executable).with_name("horovodrun")), "-np", "2", "-H", "localhost:2"]
    subprocess.run([*launch, sys.executable, str(worker)], check=True)


if __name__ == "__main__":
    main()
