"""The manifest of a servable: what is in it, made with what, the hash of every file and its own."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ... import __version__
from ...foundation.atomic_write import write_text_atomically
from ...foundation.digest import sha256
from ...foundation.exceptions import MerlinSimError
from ...foundation.json_file import read_json
from ...foundation.own_digest import require_own_digest, with_own_digest

MANIFEST = "manifest.json"
FORMAT = 3
PACKAGES = ("tensorflow", "merlin-models", "merlin-core", "nvtabular", "numpy", "pyarrow")


class ServableError(MerlinSimError):
    """A servable directory is missing, damaged, or of another version."""


def write_manifest(directory: Path, facts: Mapping[str, Any]) -> None:
    """Write the manifest beside finished files.

    Args:
        directory: The servable; every file in it is hashed.
        facts: What the manifest says beside versions and files.
    """
    document = {
        "format": FORMAT,
        "merlin_sim": __version__,
        "versions": {"python": platform.python_version(), **_versions()},
        **facts,
        "files": {name: _digest(directory / name) for name in _files_in(directory)},
    }
    write_text_atomically(directory / MANIFEST, with_own_digest(document))


def read_manifest(directory: Path) -> dict[str, Any]:
    """Read the manifest and compare every file with it; nothing else is read, nothing executed.

    Raises:
        ServableError: With all that is missing, changed or not listed.
    """
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise ServableError(f"{directory}: expected a servable directory; it {what}")
    path = directory / MANIFEST
    document = read_json(path, "JSON, the manifest that `merlin-sim export` writes", ServableError)
    _check_form(path, document)
    problems = [*_check_files(directory, document["files"])]
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise ServableError(f"{directory}: not as it was exported:\n{listed}")
    return dict(document)


def _check_form(path: Path, document: Any) -> None:
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise ServableError(
            f"{path}: expected format {FORMAT}, which this version of merlin-sim "
            f"({__version__}) reads. Received: {found!r}. `merlin-sim export` writes it anew."
        )
    require_own_digest(path, ServableError)
    files = document.get("files")
    wanted = {"bytes": int, "sha256": str}
    well_formed = isinstance(files, dict) and all(
        isinstance(entry, dict) and all(isinstance(entry.get(k), t) for k, t in wanted.items())
        for entry in files.values()
    )
    if not well_formed:
        raise ServableError(f"{path}: files: expected a length and a sha256 for each file.")


def _check_files(directory: Path, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    problems = []
    found = _files_in(directory)
    for name, entry in files.items():
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            problems.append(f"{name}: a path that leaves the directory")
        elif name not in found:
            problems.append(f"{name}: missing")
        elif (directory / name).stat().st_size != entry["bytes"]:
            size = (directory / name).stat().st_size
            problems.append(f"{name}: expected {entry['bytes']:,} bytes, found {size:,}")
        elif _digest(directory / name)["sha256"] != entry["sha256"]:
            problems.append(f"{name}: its sha256 is not the manifest's")
    problems += [f"{name}: not in the manifest" for name in found if name not in files]
    return problems


def _files_in(directory: Path) -> list[str]:
    """Every file but the manifest and a staging lock; a symbolic link counts as a file."""
    return sorted(
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if (path.is_symlink() or not path.is_dir())
        and path.relative_to(directory).as_posix() not in (MANIFEST, ".lock")
    )


def _digest(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES}
