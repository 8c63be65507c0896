"""A servable directory: its manifest, the columns that it reads, who holds it. Executes nothing."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..foundation.batch_names import HISTORY_SUMMARY, OFFSETS, VALUES
from ..foundation.digest import DIGEST, require_own_digest, sha256, with_own_digest
from ..foundation.exceptions import MerlinSimError
from ..foundation.files import read_json, write_text_atomically
from ..schemas import SCHEMA_FILE, SPEC_FILE
from ..schemas.channels import (
    CONTEXT_FEATURES,
    HISTORY_TIME_INTERVALS,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    USER_FEATURES,
    USER_NUMERICAL,
    channels_of,
)
from ..schemas.feature_spec import FeatureSpec
from ..schemas.known_keys import IdsNote, note_ids
from ..schemas.layout_names import CATEGORIES
from ..schemas.schema_file import read_schema
from ..schemas.spec_file import read_spec
from ..workflows.criteo.criteo_columns import LOGARITHMS

if TYPE_CHECKING:
    from merlin.schema import ColumnSchema, Schema

MANIFEST = "manifest.json"
FORMAT = 3
PACKAGES = ("tensorflow", "merlin-models", "merlin-core", "nvtabular", "numpy", "pyarrow")


class ServableError(MerlinSimError):
    """A servable directory is missing, damaged, or of another version."""


def write_manifest(directory: Path, metadata: Mapping[str, Any]) -> None:
    """Write the manifest beside finished files."""
    document = {
        "format": FORMAT,
        "merlin_sim": __version__,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
        **metadata,
        "files": {name: _digest(directory / name) for name in _files_in(directory)},
    }
    write_text_atomically(directory / MANIFEST, with_own_digest(document))


def read_manifest(directory: Path) -> dict[str, Any]:
    """Read the manifest and compare every file with it; nothing else is read, nothing executed."""
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
    types = {"bytes": int, "sha256": str}
    well_formed = isinstance(files, dict) and all(
        isinstance(entry, dict) and all(isinstance(entry.get(k), t) for k, t in types.items())
        for entry in files.values()
    )
    if not well_formed:
        raise ServableError(f"{path}: files: expected a length and a sha256 for each file.")


def _check_files(directory: Path, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    problems = []
    found = _files_in(directory)
    for name, entry in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
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


def hold(servable: Path) -> int:
    """Hold a servable, which is not removed then; the file descriptor lets go of it when closed.

    A lock of the directory itself says so, which ends with the process that took it, however that
    ends. It holds on one machine, and on file systems that have locks.
    """
    try:
        descriptor = os.open(servable, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ServableError(f"{servable}: cannot be opened: {error.strerror}.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ServableError(f"{servable}: is being removed.") from None
    except OSError:
        pass  # a file system without locks
    return descriptor


@contextlib.contextmanager
def unless_held(servable: Path) -> Iterator[bool]:
    """Keep others from holding a servable; False where one does already."""
    try:
        descriptor = os.open(servable, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield True  # there is nothing to hold
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    except OSError:
        yield True
    else:
        yield True
    finally:
        os.close(descriptor)


Tensors = dict[str, npt.NDArray[Any]]
"""The inputs of a signature by name."""


@dataclass(frozen=True)
class ServedColumn:
    """One column of the schema, as serving needs it."""

    name: str
    domain: str
    """Name of its domain of ids; of a column without ids its own name."""
    dtype: npt.DTypeLike
    largest_id: int | None
    """The domain's largest id; None for a column of numbers."""
    width: int | None = None
    """How many values a row has where that is fixed: of a vector, of a list of ids without an
    order, which 0 fills up; None for a single value, and for a history."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a column that is not a history."""
        return (-1,) if self.width is None else (-1, self.width)


@dataclass(frozen=True)
class ServedColumns:
    """The columns of one servable."""

    users: tuple[ServedColumn, ...]
    """Ids of the user."""
    targets: tuple[ServedColumn, ...]
    histories: tuple[ServedColumn, ...]
    """In the order of ``targets``; none where requests are plain rows."""
    intervals: ServedColumn | None
    """Time intervals, aligned with the histories."""
    longest: int
    """Positions of a history that the model reads, the newest."""
    is_ragged: bool
    """Whether histories are values and offsets, or padded rows."""
    user_numbers: tuple[ServedColumn, ...] = ()
    """Numbers and vectors of the user."""
    target_lists: tuple[ServedColumn, ...] = ()
    """Lists of ids of each candidate."""
    target_numbers: tuple[ServedColumn, ...] = ()
    """Numbers and vectors of each candidate."""
    contexts: tuple[ServedColumn, ...] = ()
    """Ids of the context of a request."""

    @classmethod
    def read(cls, schema: Schema, names: Sequence[str]) -> ServedColumns:
        """Take the columns that a model reads by the channels of a schema."""
        schema = schema.select_by_name(list(names))
        channels = channels_of(schema)

        def columns(channel: str) -> tuple[ServedColumn, ...]:
            return tuple(_column(schema[name]) for name in channels.get(channel, ()))

        histories = columns(POSITIVE_HISTORY)
        first = schema[histories[0].name]
        return cls(
            users=columns(USER_FEATURES),
            targets=columns(TARGET_ITEM_FEATURES),
            histories=histories,
            intervals=next(iter(columns(HISTORY_TIME_INTERVALS)), None),
            longest=int(first.value_count.max),
            is_ragged=bool(first.is_ragged),
            contexts=columns(CONTEXT_FEATURES),
            user_numbers=columns(USER_NUMERICAL),
            target_lists=columns(TARGET_ITEM_LISTS),
            target_numbers=columns(TARGET_ITEM_NUMERICAL),
        )

    @classmethod
    def of_rows(cls, schema: Schema, names: Sequence[str]) -> ServedColumns:
        """Take columns as they stand beside each other in a plain row: all change row by row."""
        targets = tuple(_column(schema[name]) for name in names)
        return cls((), targets, (), None, longest=0, is_ragged=False)

    @property
    def event_keys(self) -> tuple[ServedColumn, ...]:
        """All columns of which an event has a key: the user's own, and its context."""
        return (*self.users, *self.contexts)

    @property
    def of_user(self) -> tuple[ServedColumn, ...]:
        """All columns with one row for each event."""
        return (*self.event_keys, *self.user_numbers)

    @property
    def of_target(self) -> tuple[ServedColumn, ...]:
        """All columns with one row for each candidate."""
        return (*self.targets, *self.target_lists, *self.target_numbers)

    @property
    def lists(self) -> tuple[ServedColumn, ...]:
        """All columns with a history in each row."""
        return (*self.histories, *((self.intervals,) if self.intervals else ()))

    @property
    def all(self) -> tuple[ServedColumn, ...]:
        """Every column that the model reads."""
        return (*self.of_user, *self.of_target, *self.lists)

    @property
    def inputs(self) -> dict[str, tuple[npt.DTypeLike, tuple[int, ...]]]:
        """The signature: input -> dtype and shape, -1 where any length goes."""
        found: dict[str, tuple[npt.DTypeLike, tuple[int, ...]]] = {}
        for column in (*self.of_user, *self.of_target):
            found[column.name] = (column.dtype, column.shape)
        for column in self.lists:
            if self.is_ragged:
                found[column.name + VALUES] = (column.dtype, (-1,))
                found[column.name + OFFSETS] = (np.int32, (-1,))
            else:
                found[column.name] = (column.dtype, (-1, self.longest))
        return found


def _column(column: ColumnSchema) -> ServedColumn:
    domain = column.int_domain
    dtype = np.dtype(column.dtype.to("numpy"))
    width = int(column.value_count.max) if column.is_list and not column.is_ragged else None
    if domain is None or domain.max is None:
        return ServedColumn(column.name, column.name, dtype, None, width)
    return ServedColumn(column.name, domain.name or column.name, dtype, int(domain.max), width)


MODEL = "model"

SCORE = "score"
"""Name of the model's output: the click probability, [rows, 1], float32."""
PLAIN_SIGNATURE = "serving_default"
"""Every row has its own user and candidate."""
ONE_USER_SIGNATURE = "one_user"
"""One row of the user's columns, one of the target item's for each candidate."""

SUMMARIZED = "_summarized"
"""After a signature's name: a row's history is its newest positions, and a summary of the whole."""
SUMMARIZE_SIGNATURE = "summarize"
"""Of a model with summaries: a row of histories each; a history's is the sum of those of parts."""

USER_VECTOR_SIGNATURE, ITEM_VECTOR_SIGNATURE = "user_vector", "item_vector"
"""Of a model with vectors: a row of the user's columns each, a row of the target item's each."""
VECTOR = "vector"
"""Their output, [rows, dim], float32."""


class SummaryNote(NamedTuple):
    """How a model sums histories up."""

    dim: int
    recent: int
    """How many of the newest positions it also reads."""
    model: str
    """The digest of its manifest: a summary of another model is of no use."""

    def columns(self, columns: ServedColumns) -> ServedColumns:
        """Return what is read of a request whose history is summed up."""
        column = ServedColumn(HISTORY_SUMMARY, HISTORY_SUMMARY, np.float32, None, self.dim)
        return replace(columns, user_numbers=(*columns.user_numbers, column))


@dataclass(frozen=True)
class Servable:
    """An exported model with its vocabularies. Opening one executes nothing of it."""

    path: Path
    manifest: dict[str, Any]
    spec: FeatureSpec
    """The spec of the dataset that the model was trained on."""
    schema: Schema
    """The same as a Merlin schema, histories in the form that the model takes."""

    @classmethod
    def open(cls, path: Path | str, *, with_model: bool = True) -> Servable:
        """Open a servable and check every file of it; the workflow's part needs no model."""
        directory = Path(path)
        if directory.is_symlink():  # a registry's: it may lead elsewhere while this one is read
            directory = directory.resolve()
        manifest = read_manifest(directory)
        needed = [SPEC_FILE, SCHEMA_FILE] + ([f"{MODEL}/saved_model.pb"] if with_model else [])
        missing = [name for name in needed if name not in manifest["files"]]
        if missing:
            raise ServableError(f"{directory}: a servable without {', '.join(missing)}.")
        request = manifest.get("request")
        if not isinstance(request, dict) or not isinstance(request.get("columns"), list):
            raise ServableError(f"{directory}: its manifest does not say what a request is.")
        if request.get("numbers") not in (None, LOGARITHMS):
            raise ServableError(
                f"{directory}: its numbers should become {LOGARITHMS}, or stay. "
                f"Received: {request['numbers']!r:.60}"
            )
        spec = read_spec(directory / SPEC_FILE, check_files=False)
        return cls(directory, manifest, spec, read_schema(directory / SCHEMA_FILE))

    @property
    def takes_rows(self) -> bool:
        """Whether a request is plain rows, without a history."""
        return bool(self.manifest["request"]["of"] == "rows")

    @property
    def takes_raw_numbers(self) -> bool:
        """Whether the numbers of a request are those of the log, of which logarithms are taken."""
        return bool(self.manifest["request"].get("numbers") == LOGARITHMS)

    @property
    def columns(self) -> ServedColumns:
        """The columns that the model reads."""
        read = ServedColumns.of_rows if self.takes_rows else ServedColumns.read
        return read(self.schema, self.manifest["request"]["columns"])

    @property
    def summary(self) -> SummaryNote | None:
        """The model's needs of a history whose summary is kept; None where it reads none."""
        note = self.manifest.get("summary")
        if note is None:
            return None
        return SummaryNote(note["dim"], note["recent"], self.manifest[DIGEST])

    @property
    def ids(self) -> IdsNote:
        """The vocabularies of the ids that the model reads."""
        columns = list(self.manifest["request"]["columns"])
        return note_ids(self.schema.select_by_name(columns), self.path)

    @property
    def model(self) -> Path:
        """The SavedModel."""
        return self.path / MODEL

    def vocabulary(self, domain: str) -> Path | None:
        """The vocabulary of a domain; None where its raw keys are the ids."""
        path = self.path / CATEGORIES / f"{domain}.parquet"
        return path if f"{CATEGORIES}/{domain}.parquet" in self.manifest["files"] else None

    def check_reads_histories(self) -> None:
        """Refuse a model that has no use for a store of histories."""
        if self.takes_rows:
            raise ServableError(f"{self.path}: the model reads no history: no store is needed.")
        if not self.columns.users:
            raise ServableError(
                f"{self.path}: the model reads no column of a user, and a store has histories by "
                "user: requests have to bring them."
            )
        if self.columns.intervals is not None:
            raise ServableError(
                f"{self.path}: the model reads {self.columns.intervals.name!r} beside each "
                "history, which a store does not have: requests have to bring both."
            )

    def check_ranks(self) -> None:
        """Refuse a model that cannot score what is retrieved for users with histories."""
        if self.takes_rows or self.columns.intervals is not None:
            raise ServableError(
                f"{self.path}: expected a model of users with histories, without times between "
                "interactions, which are not kept here."
            )
