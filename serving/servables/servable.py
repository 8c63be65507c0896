"""A servable directory, opened: checked against its manifest, its descriptions read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...schemas import SCHEMA_FILE, SPEC_FILE
from ...schemas.channels import channels_of
from ...schemas.known_keys import IdsNote, note_ids
from ...schemas.specs.feature_spec import FeatureSpec
from ...schemas.specs.spec_file import read_spec
from ...schemas.translation.schema_file import read_schema
from ...workflows.criteo.criteo_columns import LOGARITHMS
from .manifest import ServableError, read_manifest
from .served_columns import ServedColumns

if TYPE_CHECKING:
    from merlin.schema import Schema

MODEL = "model"

CATEGORIES = "categories"
WORKFLOW = "workflow.json"
SCORE = "score"
"""Name of the model's output: the click probability, [rows, 1], float32."""
PLAIN_SIGNATURE = "serving_default"
"""Every row has its own user and candidate."""
ONE_USER_SIGNATURE = "one_user"
"""One row of the user's columns, one of the target item's for each candidate."""

USER_VECTOR_SIGNATURE, ITEM_VECTOR_SIGNATURE = "user_vector", "item_vector"
"""Of a model with vectors: a row of the user's columns each, a row of the target item's each."""
VECTOR = "vector"
"""Their output, [rows, dim], float32."""


@dataclass(frozen=True)
class Servable:
    """What a servable says of itself. Opening one executes nothing of it."""

    path: Path
    """The directory."""
    manifest: dict[str, Any]
    """Its manifest."""
    spec: FeatureSpec
    """The spec of the dataset that the model was trained on."""
    schema: Schema
    """The same as a Merlin schema, histories in the form that the model takes."""

    @classmethod
    def open(cls, path: Path | str, *, with_model: bool = True) -> Servable:
        """Open a servable and check every file of it.

        Args:
            path: The directory.
            with_model: Whether it has to hold the model; the workflow's part does without.

        Raises:
            ServableError: Where it is not what was exported.
        """
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
    def channels(self) -> dict[str, list[str]]:
        """Channel name -> the names of its columns."""
        return channels_of(self.schema)

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
        if self.takes_rows:
            return ServedColumns.of_rows(self.schema, self.manifest["request"]["columns"])
        return ServedColumns.read(self.schema)

    @property
    def ids(self) -> IdsNote:
        """What the ids that the model reads mean."""
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
        """Refuse a model that has no use for a store of histories.

        Raises:
            ServableError: Where it reads none, or their times too.
        """
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
