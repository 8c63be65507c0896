"""A dataset in other forms, brought to parquet once, in a directory beside its files."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ...foundation.exceptions import MerlinSimError
from ...schemas import SPEC_FILE
from ...schemas.source_files import named_files
from ...schemas.specs.feature_spec import FeatureSpec
from ...schemas.users_layout import is_of_users

CACHE = "parquet-cache"
"""The directory of what was made, within the dataset directory; each under its sources' name."""
LOCK = ".lock"
END_BYTES = 65_536
"""What is read of both ends of a source, beside its length and its time."""
FED = ("train", "test")


def is_fed_as_it_is(spec: FeatureSpec) -> bool:
    """Tell whether the feed reads the dataset's files: users, or one chunk of parquet."""
    if is_of_users(spec):
        return True
    mappings = [spec.source_spec[name] for name in FED if name in spec.source_spec]
    return all(len(chunks) == 1 and chunks[0].type == "parquet" for chunks in mappings)


def types_of(spec: FeatureSpec) -> str:
    """Say in what types of chunks a dataset is, for a person.

    >>> from ...schemas.specs.feature_spec import Chunk
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

    Several processes may come at once: one makes it, the others wait for it.

    Args:
        directory: The dataset directory.
        feature_spec: The spec's name in it.
        spec: What that says.
        transcode: Makes a directory, which appears whole or not at all. Where it starts a process
            for that, this is to inherit the lock: ``close_fds=False``.

    Raises:
        MerlinSimError: Where the cache cannot be written, or a source cannot be read.
    """
    place = directory / CACHE / sources_name(directory / feature_spec, spec)
    if (place / SPEC_FILE).is_file():
        return place
    with _alone(directory / CACHE, directory):
        if not (place / SPEC_FILE).is_file():
            transcode(place)
    return place


def older_caches(place: Path) -> list[Path]:
    """List the other caches beside one, which are of other files or of another spec."""
    others = place.parent.iterdir() if place.parent.is_dir() else ()
    return sorted(other for other in others if (other / SPEC_FILE).is_file() and other != place)


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
def _alone(cache: Path, directory: Path) -> Iterator[None]:
    """Hold the cache's lock; whoever comes meanwhile waits. What fails leaves nothing behind."""
    try:
        lock = _lock(cache)
    except OSError as error:
        raise MerlinSimError(
            f"{cache} cannot be written: {error.strerror}. The dataset is brought to parquet there "
            f"once. `merlin-sim transcode --input {directory} --output DATASET` does the same "
            "elsewhere."
        ) from error
    try:
        with lock:
            # A process that was started to transcode holds it too, should this one be killed.
            os.set_inheritable(lock.fileno(), True)
            yield
    except BaseException:
        _leave_nothing(cache)
        raise


def _lock(cache: Path) -> IO[str]:
    """Take the lock; whoever held it may have taken its file away, and another is made then."""
    while True:
        cache.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            lock = open(cache / LOCK, "w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _stands(lock, cache):
                return lock
            lock.close()


def _leave_nothing(cache: Path) -> None:
    """Remove the lock, and the cache if it is empty, unless another process holds the lock."""
    with suppress(OSError), open(cache / LOCK, "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _stands(lock, cache):
            os.unlink(cache / LOCK)
            cache.rmdir()


def _stands(lock: IO[str], cache: Path) -> bool:
    """Tell whether an open lock is the file that stands in the cache."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), os.stat(cache / LOCK))
    except FileNotFoundError:
        return False
