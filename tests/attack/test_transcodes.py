"""Datasets in other forms are the same ones: there and back, fed, and refused where damaged."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
import yaml
from hypothesis import given
from hypothesis import strategies as st

from merlin_sim.foundation.progress import Silence
from merlin_sim.schemas.spec_file import read_spec
from merlin_sim.workflows.transcoding.transcode import TfrecordForm, Transcoder

from .feeding import MAPPINGS
from .good_datasets import FORMS, SPEC, good_datasets
from .judged import share
from .truth import Truth, as_fed

pytestmark = pytest.mark.slow
Columns = dict[str, list[Any]]


def transcode(source: Path, output: Path, to: str = "parquet", *form: TfrecordForm) -> None:
    Transcoder(read_spec(source / SPEC), source, Silence(), to, *form).transcode(output)


def read_record(record: bytes) -> dict[str, Any]:
    found = {}
    for name, feature in tf.train.Example.FromString(record).features.feature.items():
        found[name] = list(getattr(feature, feature.WhichOneof("kind")).value)
    return found


def stored(directory: Path, mapping: str) -> Columns:
    spec = yaml.safe_load((directory / SPEC).read_bytes())
    columns: Columns = {}
    for chunk in spec["source_spec"][mapping]:
        names, stated = chunk["features"], spec["feature_spec"]
        for file in chunk["files"]:
            path = directory / file
            if chunk["type"] == "parquet":
                tables = [pq.read_table(path).to_pydict()]
            elif chunk["type"] == "tfrecord":
                tables = map(read_record, tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
            else:
                dtype = stated[names[0]]["dtype"].replace("bool", "uint8")
                values = np.fromfile(path, dtype).reshape(-1, len(names)).T.tolist()
                tables = [dict(zip(names, values, strict=True))]
            for table in tables:
                for name in names:
                    cells = table[name]
                    if "dimensions" in stated[name] and not isinstance(cells[0], list):
                        (size,) = stated[name]["dimensions"]
                        cells = [cells[at : at + size] for at in range(0, len(cells), size)]
                    columns.setdefault(name, []).extend(cells)
    return columns


SIZES = st.fixed_dictionaries({m: st.sampled_from([0, 1, 2, 7, 50]) for m in MAPPINGS})
PARTS = st.fixed_dictionaries({m: st.integers(1, 4) for m in MAPPINGS})


@share(10, suite=4)
@given(good_datasets(("sim", "clicks")), PARTS, SIZES)
def test_there_and_back(good, parts, sizes):
    with tempfile.TemporaryDirectory(prefix="attack-") as parent:
        source, there, back = (Path(parent) / name for name in ("source", "there", "back"))
        good.write(source)
        transcode(source, there, "tfrecord", TfrecordForm(parts, sizes))
        transcode(there, back)
        made = [there, back]
        if good.form == "clicks":
            made += [Path(parent) / "binary", Path(parent) / "from binary"]
            transcode(source, made[2], "split_binary")
            transcode(*made[2:])
        for mapping in MAPPINGS:
            wanted = Truth(source, mapping).columns
            for directory in made:
                found = stored(directory, mapping)
                for name, column in FORMS[good.form].items():
                    columns = (as_fed(each[name], column) for each in (found, wanted))
                    np.testing.assert_array_equal(*columns, f"{directory.name}: {name}")
