"""The datasets whose rows are dealt out, and what each of their rows has to hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from .arrow_truth import Truth
from .clicks_form import FORM as CLICKS
from .clicks_form import make_clicks
from .comparison import as_array
from .descriptions import read_descriptions
from .draft import DOCUMENTS, LISTS, LONGEST, SAMPLES, Form, make_table
from .featured_form import FORM as FEATURED
from .featured_form import MORE, make_featured
from .users_form import FORM as USERS
from .users_form import TABLE, make_items, make_users
from .users_truth import Maker, read_items, read_samples, read_users

CANDIDATES = [2, 6, 16]

Matrix = np.ndarray
"""One line of numbers for each row: all its columns, histories padded on the left."""


class Laid:
    """A dataset of samples whose train rows lie in the plan's files; any other has its own class.

    Args:
        directory: Where it is written.
        base: Of the plan.
    """

    rows = 1
    """How many rows a row of the files makes, about."""
    form: Form = SAMPLES

    def __init__(self, directory: Path, base: dict[str, Any]) -> None:
        """Keep the arguments."""
        self.directory, self.base = directory, base
        self.options: dict[str, Any] = {}
        """Of the feed."""

    @property
    def model(self) -> str:
        return self.form.model

    @property
    def names(self) -> list[str]:
        """The files in the order of the spec, which is seldom that of their names."""
        numbers = np.random.default_rng(self.base["seed"]).permutation(
            len(self.base["sizes"]["files"])
        )
        return [f"train/part.{number}.parquet" for number in numbers]

    def write(self) -> None:
        """Write the files, and any test file."""
        sizes = self.base["sizes"]
        for number, (name, rows) in enumerate(zip(self.names, sizes["files"], strict=True)):
            table = self.table(rows, self.base["seed"] + number)
            path = self.directory / name
            path.parent.mkdir(exist_ok=True)
            pq.write_table(table, path, row_group_size=max(1, sizes["group"]))
        self.write_rest()
        good = self.form.make(
            {"seed": 0, "padded": False, "sizes": {"rows": [1, 1, 1], "group": 1}}
        )
        for name in DOCUMENTS:
            (self.directory / name).write_bytes(good.documents[name] or b"")
        spec = yaml.safe_load(good.documents[DOCUMENTS[0]] or b"")
        self.name_files(spec["source_spec"])
        (self.directory / DOCUMENTS[0]).write_text(yaml.safe_dump(spec, sort_keys=False))

    def table(self, rows: int, seed: int) -> pa.Table:
        """Make the rows of a file."""
        return make_table(rows, seed, self.base["padded"])

    def write_rest(self) -> None:
        """Write what is not trained on."""
        (self.directory / "test").mkdir()
        pq.write_table(self.table(3, 0), self.directory / "test/part.0.parquet")

    def name_files(self, sources: dict[str, Any]) -> None:
        """Name the files in the spec."""
        sources["train"][0]["files"] = self.names

    def stored(self) -> Matrix:
        """All rows of the files by arrow, in their order."""
        files = [self.directory / name for name in self.names]
        table = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
        return self.joined({name: table.column(name).to_pylist() for name in self.widths})

    @property
    def widths(self) -> dict[str, int]:
        """Column -> how many numbers it has in a row."""
        return {name: LONGEST if name in LISTS else 1 for name in self.form.largest}

    def joined(self, cells: dict[str, list[Any]]) -> Matrix:
        """Join the cells of columns, short lists padded on the left."""
        columns = []
        for name, width in self.widths.items():
            column = cells[name]
            if column and isinstance(column[0], list):
                column = as_array(column, width)
            columns.append(np.array(column, np.float64).reshape(-1, width))
        return np.concatenate(columns, axis=1)

    def matrix(self, rows: dict[str, np.ndarray]) -> Matrix:
        """Join the columns of a batch."""
        label = self.form.channels["label"][0]
        named = {(label if name == "\0label" else name): array for name, array in rows.items()}
        # A rank may have no rows in the last step: what is empty has no width to be guessed.
        columns = [
            named[name].reshape(len(named[name]), width).astype(np.float64)
            for name, width in self.widths.items()
        ]
        return np.concatenate(columns, axis=1)


class LaidClicks(Laid):
    """A dataset of numbers and categories."""

    form = CLICKS

    def table(self, rows: int, seed: int) -> pa.Table:
        """Make the rows of a file."""
        return make_clicks(rows, seed)


class LaidFeatured(Laid):
    """A dataset of samples with numbers, vectors, lists and time intervals."""

    form = FEATURED

    def table(self, rows: int, seed: int) -> pa.Table:
        """Make the rows of a file."""
        return make_featured(rows, seed, self.base["padded"])

    @property
    def widths(self) -> dict[str, int]:
        """Column -> how many numbers it has in a row."""
        more = {name: (said.get("dimensions") or [1])[0] for name, said in MORE.items()}
        return {**super().widths, **more}


class LaidUsers(Laid):
    """A dataset of users, whose samples are made while it is read."""

    rows = 24
    form = USERS

    def table(self, rows: int, seed: int) -> pa.Table:
        """Make the rows of a file; seldom with a long history."""
        return make_users(rows, seed, 200 if seed % 5 == 0 else 30)

    def write_rest(self) -> None:
        """Write the items; the test samples are those of the same users."""
        (self.directory / TABLE).parent.mkdir()
        pq.write_table(make_items(self.base["seed"]), self.directory / TABLE)

    def name_files(self, sources: dict[str, Any]) -> None:
        """Name the files in the spec: every mapping has the same."""
        for chunks in sources.values():
            chunks[0]["files"] = self.names

    def stored(self) -> Matrix:
        """All samples, made one by one."""
        truth = read_samples(self.directory, "train", read_descriptions(self.directory))
        return self.joined(truth.columns)


class LaidGroups(LaidUsers):
    """The same, read as users x candidates."""

    def __init__(self, directory: Path, base: dict[str, Any]) -> None:
        """Keep the arguments."""
        super().__init__(directory, base)
        self.options = {"candidates": base["candidates"]}

    @property
    def widths(self) -> dict[str, int]:
        """Column -> how many numbers it has in a row."""
        candidates = self.base["candidates"]
        seen = LONGEST + candidates // 2 - 1
        of_users, channels = {}, self.form.channels
        for name in self.form.largest:
            of_users[name] = 1 if name in channels["user_features"] else candidates
            of_users[name] = seen if name in LISTS else of_users[name]
        return {**of_users, "weight": candidates, "history_end": candidates}

    def stored(self) -> Matrix:
        """All stretches of all users."""
        facts, truth, most = (
            read_descriptions(self.directory),
            Truth(),
            self.base["candidates"] // 2,
        )
        maker = Maker(facts, read_items(self.directory, facts, truth))
        rows: dict[str, list[Any]] = {name: [] for name in self.widths}
        for user in read_users(self.directory, "train", facts, truth):
            begin, stop = user.spans["train"]
            for first in range(begin, stop, most):
                end = min(first + most, stop)
                for name, value in maker.stretch(user, first, end, 2 * most).items():
                    rows[name].append(value)
        return self.joined(rows)

    def matrix(self, rows: dict[str, np.ndarray]) -> Matrix:
        """Join the columns of a batch; where a filler's history ends is anybody's choice."""
        ends, width = rows["history_end"], self.widths["thing_seen"]
        if not ((ends >= LONGEST) & (ends <= width)).all():
            raise AssertionError(f"history_end of {ends.min()} to {ends.max()}")
        of_each = ends.repeat(rows["weight"].shape[1] // ends.shape[1], axis=1)  # twins share one
        return super().matrix({**rows, "history_end": of_each * (rows["weight"] > 0)})


DATASETS: dict[str, type[Laid]] = {
    "samples": Laid,
    "clicks": LaidClicks,
    "featured": LaidFeatured,
    "users": LaidUsers,
    "users x candidates": LaidGroups,
}
