"""A dataset in other forms, brought to parquet once, in a directory beside its files."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...foundation.exceptions import MerlinSimError
from ...schemas import SPEC_FILE
from ...schemas.feature_spec import FeatureSpec
from ...schemas.source_files import named_files
from ...schemas.users_layout import is_of_users

CACHE = "parquet-cache"
"""The directory of what was made, within the dataset directory; each under its sources' name."""
END_BYTES = 65_536
"""What is read of both ends of a source, beside its length and its time."""


def is_fed_as_it_is(spec: FeatureSpec) -> bool:
    """Return whether the feed reads the dataset's files: users, or one chunk of parquet."""
    if is_of_users(spec):
        return True
    mappings = spec.source_spec.values()
    return all(len(chunks) == 1 and chunks[0].type == "parquet" for chunks in mappings)


def types_of(spec: FeatureSpec) -> str:
    """Say in what types of chunks a dataset is, for a person.

    >>> from ...schemas.feature_spec import Chunk
    >>> two = (Chunk("csv", ("a",), ("a.csv",)), Chunk("csv", ("b",), ("b.csv",)))
    >>> types_of(FeatureSpec({}, {"train": two, "test": two[:1]}, {}))
    'several chunks of csv'
    """
    mappings = spec.source_spec.values()
    types = " and ".join(dict.fromkeys(chunk.type for chunks in mappings for chunk in chunks))
    return f"several chunks of {types}" if any(len(chunks) > 1 for chunks in mappings) else types


def parquet_cache(
    directory: Path, feature_spec: str, spec: FeatureSpec, transcode: Callable[[Path], None]
) -> Path:
    """Return the directory with the dataset in parquet; make it if there is none of these files.

    Several processes may come at once: one makes it, the others wait for it. ``transcode`` makes a
    directory, whole or not at all; a process that it starts is to inherit the lock
    (``close_fds=False``).
    """
    cache = directory / CACHE
    cached = cache / sources_name(directory / feature_spec, spec)
    if (cached / SPEC_FILE).is_file():
        return cached
    with _locked(directory / feature_spec):
        try:
            cache.mkdir(exist_ok=True)
        except OSError as error:
            raise MerlinSimError(
                f"{cache} cannot be written: {error.strerror}. The dataset is brought to parquet "
                "there once. "
                f"`merlin-sim data transcode --input {directory} --output DATASET` does the same "
                "elsewhere."
            ) from error
        try:
            if not (cached / SPEC_FILE).is_file():
                transcode(cached)
        finally:
            with suppress(OSError):  # nothing is left behind, unless there is a cache
                cache.rmdir()
    return cached


def older_caches(cached: Path) -> list[Path]:
    """List the other caches beside one, which are of other files or of another spec."""
    others = cached.parent.iterdir() if cached.parent.is_dir() else ()
    return sorted(other for other in others if (other / SPEC_FILE).is_file() and other != cached)


def sources_name(spec_file: Path, spec: FeatureSpec) -> str:
    """Return a short name for a spec and its files as they are now.

    It covers the spec's text, and of each file its name, length, time of change, and both ends.
    """
    directory = spec_file.parent
    path = spec_file
    digest = hashlib.sha256()
    try:
        digest.update(spec_file.read_bytes())
        for path in sorted({directory / named.name for named in named_files(spec)}):
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                digest.update(f"{path.relative_to(directory)}\0{status.st_size}".encode())
                digest.update(f"\0{status.st_mtime_ns}\0".encode() + file.read(END_BYTES))
                file.seek(max(0, status.st_size - END_BYTES))
                digest.update(file.read(END_BYTES))
    except OSError as error:
        raise MerlinSimError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:16]


@contextmanager
def _locked(spec_file: Path) -> Iterator[None]:
    """Hold a lock on the spec; other processes wait.

    A process that was started to transcode holds it too, should this one be killed.
    """
    # NFS gives an exclusive lock only on what may be written.
    mode = os.O_RDWR if os.access(spec_file, os.W_OK) else os.O_RDONLY
    with os.fdopen(os.open(spec_file, mode), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), True)
        yield
