"""``merlin-sim plan``: what a person sees, without data, and what is refused."""

from __future__ import annotations

import pytest
from in_process import run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.dataset import write_documents
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec

ROWS = {"site": 5_000_000, "device": 40, "page": 300_000}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A feature spec alone, as someone has it who plans."""
    directory = tmp_path_factory.mktemp("spec")
    features = {"clicked": Feature("int8"), "price": Feature("float32")}
    features |= {name: Feature("int32", rows) for name, rows in ROWS.items()}
    chunks = {n: (Chunk("parquet", tuple(features), (f"{n}.parquet",)),) for n in ("train", "test")}
    channels = {"label": ("clicked",), "categorical": tuple(ROWS), "numerical": ("price",)}
    write_documents(directory, FeatureSpec(features, chunks, channels, {}))
    return directory


def plan(dataset, *more):
    return run("plan", "--dataset_dir", dataset, "--model_type", "dlrm", *more)


def test_tables_ranks_and_sums_are_shown(dataset):
    lines = plan(dataset, "--ranks", 4, "--nodes", 2, "--optimizer", "sgd").splitlines()
    of = {line.split()[0]: " ".join(line.split()) for line in lines if line.strip()}
    assert of["device"] == "device 40 128 20.00 KiB 0 20.16 KiB every rank"
    assert of["site"].startswith("site 5,000,000 128 2.38 GiB 0 66.00 MiB columns in 4: ranks 0, 1")
    assert of["page"] == "page 300,000 128 146.48 MiB 0 65.00 MiB columns in 2: ranks 0, 1"
    assert {"0", "1", "2", "3"} <= of.keys()
    said = " ".join(lines)
    assert "3 tables, 2.53 GiB of weights." in said
    assert "Between nodes: " in said and "memory 1.0" in said
    lines = plan(dataset, "--ranks", 2, "--optimizer", "adam").splitlines()
    of = {line.split()[0]: " ".join(line.split()) for line in lines if line.strip()}
    assert of["table"] == "table rows width weights adam gradient where"
    assert of["device"] == "device 40 128 20.00 KiB 40.00 KiB 20.00 KiB every rank"
    small = ["--embedding_dim", 16, "--bottom_mlp_dims", "32,16"]
    more = ["--ranks", 2, "--cut", "rows", "--optimizer", "adagrad"]
    said = " ".join(plan(dataset, *small, *more).split())
    assert "5,000,000 16" in said and "rows in 2: ranks 0, 1" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--ranks", 1, "--memory", "1GB", "--optimizer", "sgd"],
            r"--host_memory of 2.7\d GiB a rank",
        ),
        (["--ranks", 2, "--memory", "lots"], "like 80GB or 64GiB. Received: 'lots'"),
        (["--ranks", 3, "--nodes", 2], "`ranks` should be divisible by `nodes`"),
        (["--ranks", 2, "--top_k", 4], "top_k"),
    ],
)
def test_what_is_wrong_is_reported(dataset, options, said):
    with pytest.raises(MerlinSimError, match=said):
        plan(dataset, *options)
