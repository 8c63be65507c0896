"""Checkpoints that appear whole or not at all, and are checked when they are read."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..schemas.exceptions import MerlinSimError

MANIFEST = "manifest.json"
ARRAYS = "arrays.npz"
BEST = "best.json"
FORMAT = 1
_NAME = re.compile(r"step-(\d{10})")


class CheckpointError(MerlinSimError):
    """A checkpoint is missing, damaged, or of another model or dataset."""


@dataclass(frozen=True)
class Checkpoint:
    """What one directory holds."""

    path: Path
    facts: dict[str, Any]
    """What the run wrote beside the arrays: position, model, dataset, seed, metrics."""
    arrays: dict[str, npt.NDArray[Any]]


class CheckpointStore:
    """A directory of checkpoints: the newest ``keep``, and the best by test AUC.

    Each is a directory ``step-<steps>`` with a manifest and one file of arrays, written beside
    and renamed when complete. The manifest carries the arrays' length and digest.
    """

    def __init__(self, directory: Path, keep: int = 3) -> None:
        """Name the directory; nothing is read or written yet."""
        self.directory = directory
        self.keep = keep

    def save(
        self,
        steps: int,
        facts: dict[str, Any],
        arrays: dict[str, npt.NDArray[Any]],
        test_auc: float | None = None,
    ) -> Path:
        """Write a checkpoint, then remove those that are neither new nor best.

        Raises:
            CheckpointError: where the directory cannot be written or the disk is full; what was
                there before stays.
        """
        final = self.directory / f"step-{steps:010d}"
        partial = self.directory / f".{final.name}.{os.getpid()}"
        try:
            partial.mkdir(parents=True, exist_ok=True)
            _write_arrays(partial / ARRAYS, arrays)
            described = {**facts, "format": FORMAT, "steps": steps, "test_auc": test_auc}
            described["arrays"] = _digest(partial / ARRAYS)
            write_synced(partial / MANIFEST, json.dumps(described, indent=1))
            if final.exists():
                shutil.rmtree(final)
            os.rename(partial, final)
            _sync_directory(self.directory)
            if test_auc is not None and test_auc >= self.best_auc():
                best = {"checkpoint": final.name, "test_auc": test_auc}
                write_replacing(self.directory / BEST, json.dumps(best))
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise CheckpointError(
                f"no checkpoint could be written to {self.directory}: {error.strerror or error}"
            ) from error
        self._prune()
        return final

    def names(self) -> list[str]:
        """Name the complete checkpoints, newest first."""
        if not self.directory.is_dir():
            return []
        names = [path.name for path in self.directory.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(names, reverse=True)

    def best(self) -> str | None:
        """Name the checkpoint with the best test AUC."""
        try:
            name = json.loads((self.directory / BEST).read_text())["checkpoint"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return str(name) if name in self.names() else None

    def best_auc(self) -> float:
        """Return its test AUC; below every AUC where there is none."""
        try:
            return float(json.loads((self.directory / BEST).read_text())["test_auc"])
        except (OSError, ValueError, KeyError, TypeError):
            return float("-inf")

    def load(self, say: Callable[[str], None] = lambda message: None) -> Checkpoint:
        """Read the newest checkpoint that is whole.

        Args:
            say: told of each checkpoint that had to be passed over.

        Raises:
            CheckpointError: where there is none.
        """
        if _NAME.fullmatch(self.directory.name):  # one checkpoint was named
            return read_checkpoint(self.directory)
        if not self.directory.is_dir():
            raise CheckpointError(f"{self.directory} holds no checkpoint: no such directory.")
        for name in self.names():
            try:
                return read_checkpoint(self.directory / name)
            except CheckpointError as error:
                say(f"{error} The one before is taken.")
        raise CheckpointError(f"{self.directory} holds no checkpoint that can be used.")

    def _prune(self) -> None:
        kept = {*self.names()[: self.keep], self.best()}
        for name in self.names():
            if name not in kept:
                shutil.rmtree(self.directory / name, ignore_errors=True)
        for path in self.directory.glob(".step-*"):  # left by runs that were killed
            shutil.rmtree(path, ignore_errors=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint and check it against its digest.

    Raises:
        CheckpointError: where anything of it is missing or damaged.
    """
    try:
        facts = json.loads((path / MANIFEST).read_text())
        if facts.get("format") != FORMAT:
            raise CheckpointError(f"{path} is of another version: format {facts.get('format')}.")
        if _digest(path / ARRAYS) != facts["arrays"]:
            raise CheckpointError(f"{path} is damaged: {ARRAYS} is not what was written.")
        with np.load(path / ARRAYS, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from error
    return Checkpoint(path, facts, arrays)


def write_synced(path: Path, text: str) -> None:
    """Write a file and wait until it is on the disk."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        _sync(file.fileno())


def write_replacing(path: Path, text: str) -> None:
    """Write a file that readers see either as it was or as it will be."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    write_synced(partial, text)
    os.replace(partial, path)


def _write_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write what ``np.load`` reads; ``np.savez`` leaves its archive open where the disk is full."""
    with open(path, "wb") as file:
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(  # type: ignore[no-untyped-call]
                        entry, array, allow_pickle=False
                    )
        file.flush()
        _sync(file.fileno())


def _sync(descriptor: int) -> None:
    os.fsync(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    size = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return {"bytes": size, "sha256": digest.hexdigest()}
