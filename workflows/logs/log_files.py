"""The files of a log, where directories of them are given."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...foundation.exceptions import MerlinSimError
from .csv_file import is_csv

PARQUET = (".parquet", ".pq")
EXPECTED = "expected a directory of CSV (.csv, .csv.gz) or parquet (.parquet, .pq) files"
SHOWN = 5


def files_of_log(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Put in the place of each directory its files, and those of its own directories, by name.

    Names that begin with ``_`` or ``.`` are those of other programs' notes, and are left out.

    Raises:
        MerlinSimError: Where a directory holds no file of a log, files of both kinds, or others.
    """
    files: list[Path] = []
    for path in paths:
        files += _files_in(path) if path.is_dir() else [path]
    return tuple(files)


def _files_in(directory: Path) -> list[Path]:
    found = [path for path in _below(directory, depth=2) if not path.is_dir()]
    of_csv = [path for path in found if is_csv(path)]
    of_parquet = [path for path in found if path.name.endswith(PARQUET)]
    # What lies deeper, and what is neither, is named: nothing of a log is left out in silence.
    others = [path for path in _below(directory) if path not in {*of_csv, *of_parquet}]
    others = [path for path in others if not path.is_dir()]
    if of_csv and of_parquet:
        both = _names(directory, [of_csv[0], of_parquet[0]], " and ")
        raise MerlinSimError(f"{directory}: {EXPECTED} of one kind, found {both}.")
    if others:
        names = _names(directory, others[:SHOWN], ", ") + ", ..." * (len(others) > SHOWN)
        raise MerlinSimError(
            f"{directory}: {EXPECTED}, in it or in directories in it, found also {names}. Move "
            "them, or name the files of the log."
        )
    if not found:
        raise MerlinSimError(f"{directory}: {EXPECTED}, found none.")
    return found


def _below(directory: Path, depth: int | None = None) -> list[Path]:
    """What lies in a directory and, so deep, in those in it, in the order of names."""
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise MerlinSimError(f"{directory}: {error.strerror or error}.") from error
    found = []
    for path in entries:
        if path.name.startswith(("_", ".")):
            continue
        found.append(path)
        if path.is_dir() and depth != 1:
            found += _below(path, None if depth is None else depth - 1)
    return found


def _names(directory: Path, paths: list[Path], between: str) -> str:
    return between.join(str(path.relative_to(directory)) for path in paths)
