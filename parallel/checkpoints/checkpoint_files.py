"""One checkpoint as a directory of files, with a digest of every byte that is believed."""

from __future__ import annotations

import contextlib
import json
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from ...foundation.digest import digest_of
from ...foundation.exceptions import MerlinSimError
from ...foundation.files import sync_directory, write_synced
from .array_files import (
    ArrayPart,
    StoredArray,
    StoredArrays,
    WrittenFile,
    join_index,
    write_arrays,
)

MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
"""Digests of the other files, as ``sha256sum --check`` reads them."""
FORMAT = 3

Writer = Callable[[Path, Iterable[ArrayPart]], Sequence[WrittenFile]]
"""Writes this rank's parts into a directory, and has the other ranks write theirs."""


class CheckpointError(MerlinSimError):
    """A checkpoint is missing, damaged, or of another model or dataset."""


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint's directory, read and compared with its digests."""

    path: Path
    metadata: dict[str, Any]
    """What the run wrote besides the arrays: position, model, dataset, seed, metrics."""
    arrays: StoredArrays
    """Name -> array, read when it is asked for; ranges of one too."""
    sums: Mapping[str, str] = field(default_factory=dict)
    """The digests of its files by name, with which they were compared."""


def write_alone(
    directory: Path, parts: Iterable[ArrayPart], report: Callable[[], None] = lambda: None
) -> Sequence[WrittenFile]:
    """Write the parts of a rank that has all of every array; call ``report`` on the way."""
    return [write_arrays(directory, parts, report=report)]


def write_checkpoint(
    path: Path,
    metadata: dict[str, Any],
    parts: Iterable[ArrayPart],
    write: Writer = write_alone,
) -> None:
    """Write a directory and wait until all of it is on the disk.

    ``write`` is called when the directory is there. Where ranks have parts of their own, each
    writes them with :func:`~.array_files.write_arrays`, and it gives what all of them wrote.
    """
    path.mkdir(parents=True, exist_ok=True)
    files = write(path, parts)
    try:
        index = {name: asdict(array) for name, array in join_index(files).items()}
    except ValueError as error:
        raise CheckpointError(f"{path}: cannot be written: {error}.") from error
    manifest = json.dumps({**metadata, "format": FORMAT, "arrays": index}, indent=1)
    write_synced(path / MANIFEST, manifest)
    sums = {file.name: file.sha256 for file in files}
    with open(path / MANIFEST, "rb") as file:
        sums[MANIFEST] = digest_of(file)
    write_synced(path / SUMS, _sums_text(sums))
    sync_directory(path)


def read_checkpoint(
    path: Path,
    compared: Mapping[str, str] | None = None,
    opened_all: Callable[[], None] = lambda: None,
) -> SavedCheckpoint:
    """Open one checkpoint and compare every file of it with its digest.

    ``compared`` are digests with which another rank has compared the arrays' files: they are not
    read again for that. ``opened_all`` is called as soon as the checkpoint may be removed: open
    files stay readable.

    Raises:
        CheckpointError: Where anything of it is missing, damaged or of another version.
    """
    with _as_checkpoint_error(path), ExitStack() as stack:
        sums = _listed(path)
        opened = {name: stack.enter_context(open(path / name, "rb")) for name in sums}
        opened_all()
        if compared is not None and sums != compared:
            raise CheckpointError(f"{path} is not what another rank has read.")
        for name, file in opened.items():
            if compared is None or name == MANIFEST:
                _check_sum(path / name, file, sums[name])
        with opened.pop(MANIFEST) as manifest:
            metadata = _parse_metadata(path, manifest)
        index = {name: StoredArray.parse(entry) for name, entry in metadata.pop("arrays").items()}
        arrays = StoredArrays(opened, index)
        weakref.finalize(arrays, stack.pop_all().close)  # the arrays keep their files open
    return SavedCheckpoint(path, metadata, arrays, sums)


def read_checkpoint_metadata(path: Path) -> dict[str, Any]:
    """Read the manifest alone and compare it with its digest."""
    with _as_checkpoint_error(path), open(path / MANIFEST, "rb") as file:
        _check_sum(path / MANIFEST, file, _listed(path)[MANIFEST])
        metadata = _parse_metadata(path, file)
        metadata.pop("arrays")
        return metadata


@contextlib.contextmanager
def _as_checkpoint_error(path: Path) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # whatever a parser makes of it: the one before is whole
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CheckpointError(f"{path} is damaged: {reason}.") from error


def _listed(path: Path) -> dict[str, str]:
    """Return the digests by file name; refuse what is not exactly what was written."""
    if not (path / SUMS).exists() and (path / MANIFEST).exists():
        raise CheckpointError(f"{path} has no {SUMS}: it is damaged, or of an earlier version.")
    text = (path / SUMS).read_bytes().decode()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in text.split("\n"))}
    sums.pop("", None)  # after the last line
    plain = all(name == Path(name).name for name in sums)
    if not plain or len(sums) < 2 or MANIFEST not in sums or text != _sums_text(sums):
        raise CheckpointError(f"{path} is damaged: {SUMS} is not what was written.")
    return sums


def _check_sum(path: Path, file: IO[bytes], digest: str) -> None:
    if digest_of(file) != digest:
        raise CheckpointError(f"{path.parent} is damaged: {path.name} is not what was written.")


def _sums_text(sums: dict[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items())


def _parse_metadata(path: Path, file: IO[bytes]) -> dict[str, Any]:
    file.seek(0)
    metadata = json.loads(file.read())
    found = metadata.get("format") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or found != FORMAT:
        raise CheckpointError(
            f"{path} is of another version: {MANIFEST} should be of format {FORMAT}. "
            f"Received: {found!r:.40}"
        )
    return metadata
