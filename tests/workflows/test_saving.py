"""Workflows that were saved: they transform as before, elsewhere too, and refuse what changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import dask.dataframe as dd
import numpy as np
import nvtabular as nvt
import pandas as pd
import processes
import pytest
from click.testing import CliRunner
from merlin.io import Dataset
from merlin.schema import Tags
from nvtabular import ColumnSelector, ops
from warm import warm

from merlin_sim.foundation.digest import DIGEST, with_own_digest
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.scripts.main import cli
from merlin_sim.workflows.ops import Categorify
from merlin_sim.workflows.ops.registry import import_operators, operators_with, register
from merlin_sim.workflows.ops.saving import load_workflow, read_workflow_document, save_workflow


def rows(seed=0, count=300):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "user": rng.choice([f"u{n}" for n in range(20)], count),
            "item": rng.choice([f"i{n}" for n in range(50)], count),
            "other": rng.choice([f"i{n}" for n in range(60)], count),
            "kind": rng.integers(0, 9, count),
            "price": np.where(rng.random(count) < 0.1, np.nan, rng.gamma(2, 3, count)),
            "stock": rng.integers(0, 100, count).astype(float),
            "clicked": rng.integers(0, 2, count),
        }
    )
    frame["tags"] = [rng.choice([f"t{n}" for n in range(9)], n) for n in rng.integers(1, 4, count)]
    return frame


def dataset(*seeds):
    frames = [rows(seed) for seed in seeds or (0, 1)]
    return Dataset(dd.from_map(lambda frame: frame, frames, meta=frames[0].iloc[:0]))


@register(name="test.Scale")
class Scale(ops.StatOperator):
    """Divides by the largest value; what it learned is a number and a file."""

    def __init__(self, power=1):
        super().__init__()
        self.power = power
        self.largest = {}

    def fit(self, col_selector, ddf):
        return ddf[col_selector.names].max()

    def fit_finalize(self, dask_stats):
        self.largest = {name: float(value) for name, value in dask_stats.items()}

    def clear(self):
        self.largest = {}

    def transform(self, col_selector, df):
        scaled = {
            name: (df[name] / self.largest[name]) ** self.power for name in col_selector.names
        }
        return pd.DataFrame(scaled)

    def get_config(self):
        return {"power": self.power}

    def get_learned(self, directory):
        pd.Series(self.largest, name="largest").to_frame().to_parquet(directory / "largest.parquet")
        return {"columns": sorted(self.largest)}

    def set_learned(self, learned, directory):
        found = pd.read_parquet(directory / "largest.parquet")["largest"]
        self.largest = {name: found[name] for name in learned["columns"]}


def graphs(directory):
    """Graphs by name: each operator of NVTabular's that can be saved is in one."""
    out = {"out_path": str(directory)}
    ext = pd.DataFrame({"kind": range(9), "group": [n // 3 for n in range(9)]})
    price = ["price"] >> ops.FillMedian() >> ops.Clip(min_value=1, max_value=30) >> ops.LogOp()
    ids = ["user", "item", "tags"] >> Categorify(
        freq_threshold=4, dtype="int32", order="key", **out
    )
    join = ops.JoinExternal(ext, on=["kind"], columns_ext=["kind", "group"])
    return {
        "ids_and_numbers": ids + (price >> ops.Normalize(out_dtype=np.float32)) + ["clicked"],
        "nvtabular_s_ids": ["user", "tags"] >> ops.Categorify(max_size=12, **out),
        "joint": [["item", "other"], "user"] >> Categorify(**out),
        "combo": [["item", "kind"]] >> Categorify(encode_type="combo", **out),
        "buckets": ["user"] >> Categorify(num_buckets=3, freq_threshold=15, **out),
        "files": ["user"] >> Categorify(split_out=2, **out),
        "vocabularies": ["user"] >> Categorify(vocabs={"user": pd.Series(["u3", "u1"])}, **out),
        "numbers": (["price"] >> ops.FillMissing(3, add_binary_cols=True))
        + (["stock"] >> ops.NormalizeMinMax())
        + (["kind"] >> ops.Bucketize({"kind": [2, 5]}) >> ops.Rename(postfix="_bucket")),
        "borders": ["stock", "kind"] >> ops.Bucketize([3, 50]),
        "hashes": (["user"] >> ops.HashBucket(7))
        + ([["item", "kind"]] >> ops.HashedCross(5) >> ops.Rename(name="cross")),
        "lists": ["tags"] >> Categorify(**out) >> ops.ListSlice(-2) >> ops.ValueCount(),
        "tags": ["user"]
        >> Categorify(**out)
        >> ops.AddTags([Tags.USER, "mine"])
        >> ops.TagAsUserID(),
        "properties": ["stock"] >> ops.AddMetadata([Tags.ITEM], {"unit": "pieces"}),
        "selection": (ids + price)["price", "item"],
        "subtraction": (ids + price + "stock") - price,
        "group": ["stock", "kind"] + (["price"] >> ops.FillMissing()) >> ops.LogOp(),
        "target": (["user", ["item", "kind"]] >> ops.TargetEncoding("clicked", kfold=1, **out))
        + "user",
        "joined": ["kind", "user"] >> join,
        "counts": ["user"] >> ops.JoinGroupby(["price"], stats=["count", "mean"], **out),
        "few": ["user", "kind"] >> Categorify(**out) >> ops.DropLowCardinality(15),
        "lags": ["stock"] >> ops.DifferenceLag("user", shift=[1, -1]),
        "nulls": ["price", "stock"] >> ops.Dropna(),
        "grouped": ["user", "price", "kind"]
        >> ops.Groupby(
            ["user"], sort_cols=["kind"], aggs={"kind": "list", "price": ["mean", "max"]}
        ),
        "own": ["stock"] >> Scale(power=2),
    }


with TemporaryDirectory() as directory:
    NAMES = sorted(graphs(Path(directory)))


def plain(frame):
    return {
        name: [[*v] if isinstance(v, list | np.ndarray) else repr(v) for v in frame[name].tolist()]
        for name in frame.columns
    }


def without_paths(schema):
    found = [(c.name, c.dtype, c.tags, c.shape, dict(c.properties)) for c in schema]
    for *_, properties in found:
        properties.pop("cat_path", None)
    return sorted(found, key=lambda column: column[0])  # `Groupby` keeps its `aggs` as a set


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_workflow_transforms_as_before(name, tmp_path):
    workflow = nvt.Workflow(graphs(tmp_path / "work")[name]).fit(dataset())
    save_workflow(workflow, tmp_path / "saved")
    expected = plain(workflow.transform(rows(5)))
    (tmp_path / "saved").rename(tmp_path / "moved")
    (tmp_path / "work").rename(tmp_path / "gone") if (tmp_path / "work").exists() else None
    assert str(tmp_path) not in (tmp_path / "moved/workflow.json").read_text()
    loaded = load_workflow(tmp_path / "moved")
    assert plain(loaded.transform(rows(5))) == expected
    assert without_paths(loaded.output_schema) == without_paths(workflow.output_schema)
    assert without_paths(loaded.input_schema) == without_paths(workflow.input_schema)
    save_workflow(loaded, tmp_path / "again")
    assert files_of(tmp_path / "again") == files_of(tmp_path / "moved")


@pytest.mark.parametrize("backwards", [False, True])
def test_the_order_of_aggregations_is_kept(tmp_path, backwards):
    """NVTabular makes sets of them: one of the two orders is another than a set's here."""
    op = ops.Groupby(["user"], aggs={"price": ["mean", "max", "list", "first"], "kind": "sum"})
    op.conv_aggs["price"].sort(key=str, reverse=backwards)
    op.list_aggs["price"].sort(reverse=backwards)
    workflow = nvt.Workflow(["user", "price", "kind"] >> op).fit(dataset())
    save_workflow(workflow, tmp_path / "saved")
    loaded = load_workflow(tmp_path / "saved")
    assert loaded.output_schema.column_names == workflow.output_schema.column_names
    save_workflow(loaded, tmp_path / "again")
    assert files_of(tmp_path / "again") == files_of(tmp_path / "saved")


def files_of(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_loaded_workflow_can_be_fitted_anew(saved, tmp_path):
    before = files_of(saved)
    loaded = load_workflow(saved).fit(dataset(2, 3, 4))
    fresh = nvt.Workflow(graphs(tmp_path / "b")["ids_and_numbers"]).fit(dataset(2, 3, 4))
    assert plain(loaded.transform(rows(5))) == plain(fresh.transform(rows(5)))
    assert files_of(saved) == before


def test_the_workflow_saved_last_is_there(tmp_path):
    (tmp_path / "notes.txt").write_text("kept")
    for columns in (["user"], ["item"], ["user"]):
        ids = columns >> Categorify(out_path=str(tmp_path / "work"))
        save_workflow(nvt.Workflow(ids).fit(dataset()), tmp_path)
        assert load_workflow(tmp_path).output_schema.column_names == columns
        names = {path.split("/")[0] for path in read_workflow_document(tmp_path)["files"]}
        found = {path.name for path in tmp_path.iterdir()}
        assert found == {"notes.txt", "work", "workflow.json", *names}
    before = files_of(tmp_path)
    cannot = nvt.Workflow(["stock"] >> ops.LambdaOp(lambda column: column + 1)).fit(dataset())
    with pytest.raises(MerlinSimError, match="LambdaOp cannot be saved: it holds a Python"):
        save_workflow(cannot, tmp_path)
    assert files_of(tmp_path) == before
    with pytest.raises(MerlinSimError, match="sections of its own. Received: nodes"):
        save_workflow(load_workflow(tmp_path), tmp_path, nodes=[])


class Unknown(ops.Operator):
    def transform(self, col_selector, df):
        return df[col_selector.names]


class Known(Unknown):
    def __init__(self, names):
        super().__init__()
        self.names = names

    def get_config(self):
        return {"names": self.names}


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        (lambda: ops.LambdaOp(lambda column: column), "LambdaOp cannot be saved: it holds"),
        (lambda: ops.Filter(lambda df: df["stock"] > 1), "Filter cannot be saved: it holds"),
        (lambda: ops.Rename(f=str.upper), "Rename cannot be saved: it holds a Python"),
        (lambda: ops.Bucketize(lambda name: [1]), "Bucketize cannot be saved: it holds"),
        (lambda: Unknown(), "Unknown cannot be saved: it is not registered"),
        (lambda: ops.FillMissing(object()), "FillMissing cannot be saved: argument fill_val"),
        (lambda: Categorify(out_path="nowhere"), "Categorify is not fitted"),
    ],
)
def test_operators_that_cannot_be_saved_are_named(operator, said, tmp_path):
    workflow = nvt.Workflow(["stock"] >> operator())
    with pytest.raises(MerlinSimError, match="saved when it is fitted"):
        save_workflow(workflow, tmp_path)
    workflow.fit_schema(dataset().schema)
    with pytest.raises(MerlinSimError, match=said):
        save_workflow(workflow, tmp_path)
    assert not list(tmp_path.iterdir())


def test_operators_may_be_named_when_a_workflow_is_loaded(tmp_path):
    register(Known, name="test.Known")
    save_workflow(nvt.Workflow(["stock"] >> Known(["a", "b"])).fit(dataset()), tmp_path)
    text = (tmp_path / "workflow.json").read_text()
    document = json.loads(text.replace("test.Known", "Known"))
    del document[DIGEST]
    (tmp_path / "workflow.json").write_text(with_own_digest(document))
    with pytest.raises(MerlinSimError, match="names the operator 'Known', which is not registered"):
        load_workflow(tmp_path)

    class KnownHere(Known):
        pass

    KnownHere.__name__ = "Known"
    loaded = load_workflow(tmp_path, operators=[KnownHere])
    assert loaded.output_node.op.names == ["a", "b"]


@pytest.mark.slow
def test_the_command_line_imports_a_module_of_operators(tmp_path, monkeypatch):
    (tmp_path / "shop_operators.py").write_text(
        "import nvtabular as nvt\n"
        "from merlin_sim import ops\n"
        "@ops.register(name='shop.Halve')\n"
        "class Halve(nvt.ops.Operator):\n"
        "    def transform(self, col_selector, df):\n"
        "        return df[col_selector.names] / 2\n"
        "    def get_config(self):\n"
        "        return {}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MERLIN_SIM_IMPORT", "")  # is set back at the end
    result = CliRunner().invoke(cli, ["--import", "shop_operators", "data", "spec", "--help"])
    assert not result.exit_code, result.output
    halve = operators_with(())["shop.Halve"]
    workflow = nvt.Workflow(["price"] >> halve())
    workflow.fit(Dataset(pd.DataFrame({"price": [2.0, 3.0]}), cpu=True))
    save_workflow(workflow, tmp_path / "saved")
    program = tmp_path / "load.py"  # a process of its own, which is told by the environment
    program.write_text(f"import merlin_sim as ms; ms.load_workflow({str(tmp_path / 'saved')!r})")
    done = processes.run(warm(str(program)))
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_imported_or_registered_is_refused():
    with pytest.raises(MerlinSimError, match="no_such_shop: expected a module that registers"):
        import_operators(["no_such_shop"])
    with pytest.raises(MerlinSimError, match="found no get_config: a saved workflow"):
        register(Unknown)
    with pytest.raises(MerlinSimError, match="'Categorify': the name is taken by merlin_sim"):
        register(Known, name="Categorify")
    with pytest.raises(MerlinSimError, match="takes a subclass of nvtabular.ops.Operator"):
        register(dict)

    class Forgetful(ops.Normalize):
        def get_config(self):
            return {}

    with pytest.raises(MerlinSimError, match="found no get_learned, set_learned"):
        register(Forgetful)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    workflow = nvt.Workflow(graphs(directory / "work")["ids_and_numbers"]).fit(dataset())
    save_workflow(workflow, directory / "saved")
    return directory / "saved"


@pytest.fixture
def saved(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "saved")


def test_what_is_altered_or_not_there_is_named(saved, tmp_path):
    file = next(saved.rglob("unique.user.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"x")
    with pytest.raises(MerlinSimError, match=r"unique.user.parquet: not .* SHA-256 differs"):
        load_workflow(saved)
    file.unlink()
    with pytest.raises(MerlinSimError, match=r"unique.user.parquet: missing; .*json names"):
        load_workflow(saved)
    path = saved / "workflow.json"
    path.write_text(path.read_text().replace('"freq_threshold": 4', '"freq_threshold": 1'))
    with pytest.raises(MerlinSimError, match=r"workflow.json: not as it was written"):
        load_workflow(saved)
    path.write_text("[]")
    with pytest.raises(MerlinSimError, match="found format None"):
        load_workflow(saved)
    with pytest.raises(MerlinSimError, match="cannot be read: No such file"):
        load_workflow(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda document: document.update(format=6), "of format 9, found format 6"),
        (lambda document: document.pop("nodes"), "expected the section 'nodes'"),
        (lambda document: document.update(nodes=[{}]), r"nodes\[0\]\.operator: expected a whole n"),
        (lambda document: document.update(nodes=[]), "nodes: expected one at least"),
        (
            lambda document: document["nodes"][0].update(parents=[0]),
            r"nodes\[0\]: expected one of the operators, and nodes before it",
        ),
        (lambda document: document["files"].update({"../x": ""}), "files beside it, found '../x'"),
        (
            lambda document: document["operators"][1]["learned"]["categories"].update(user="../a"),
            r"expected the file '../a'",
        ),
        (
            lambda document: document["operators"][1].update(operator="builtins.eval"),
            "names the operator 'builtins.eval'",
        ),
    ],
)
def test_a_json_file_that_says_something_else_is_refused(saved, change, said):
    document = json.loads((saved / "workflow.json").read_text())
    del document[DIGEST]
    change(document)
    (saved / "workflow.json").write_text(with_own_digest(document))
    with pytest.raises(MerlinSimError, match=said):
        load_workflow(saved)


def test_tags_and_groups_of_a_selector_are_kept(tmp_path):
    selector = ColumnSelector(["stock"], tags=[Tags.USER])
    schema = dataset().schema
    schema["user"] = schema["user"].with_tags([Tags.USER])
    workflow = nvt.Workflow(selector >> ops.AddTags(["mine"])).fit_schema(schema)
    save_workflow(workflow, tmp_path)
    loaded = load_workflow(tmp_path)
    assert sorted(loaded.output_schema.column_names) == ["stock", "user"]
    leaf = loaded.graph.leaf_nodes[0]
    assert leaf.op.selector.tags == [Tags.USER] and leaf.op.selector.names == ["stock"]


def test_a_file_that_was_put_among_those_of_a_workflow_is_refused(tmp_path):
    workflow = nvt.Workflow(graphs(tmp_path / "work")["own"]).fit(dataset())
    save_workflow(workflow, tmp_path / "saved")
    (tmp_path / "saved/notes.txt").write_text("beside them others may stand")
    load_workflow(tmp_path / "saved")
    (tmp_path / "saved/workflow/stray.parquet").write_bytes(b"")
    with pytest.raises(MerlinSimError, match="stray.parquet: expected the files that"):
        load_workflow(tmp_path / "saved")
