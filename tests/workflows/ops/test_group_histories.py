"""Workflows that anyone composes of the operators: fitted, written, saved, loaded, refused."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import nvtabular as nvt
import pandas as pd
import pyarrow.parquet as pq
import pytest
from joined_numbers import JOINED
from merlin.io import Dataset
from merlin.schema import Tags

import merlin_sim as ms
from merlin_sim import ops
from merlin_sim.foundation.exceptions import DatasetWarning
from merlin_sim.foundation.progress import Silence
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.workflows.transcoding.users import users_to_samples

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*in CPU mode"),
    pytest.mark.filterwarnings("ignore:.*dtype mappings did not load"),
]
TEST_FROM = 70


@ops.register(name="tests.SquareRoot")
class SquareRoot(nvt.ops.Operator):
    """An operator of one's own."""

    def transform(self, col_selector, df):
        return df[col_selector.names] ** 0.5

    def get_config(self):
        return {}


def some_log(users=50, each=20, seed=0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    who, what = np.repeat(np.arange(users), each), random.integers(0, 40, users * each)
    log = pd.DataFrame(
        {
            "user": [f"u{number:02d}" for number in who],
            "item": [f"i{number}" for number in what],
            "category": [f"c{number % 5}" for number in what],
            "price": (what % 9 + 1.0),
            "time": random.integers(0, 100, users * each),
            "clicked": random.integers(0, 2, users * each),
        }
    )
    return log.sample(frac=1, random_state=seed).reset_index(drop=True)


def compose(directory, split=None, price=SquareRoot, fit_on="all", **more) -> nvt.Workflow:
    ids = ["user", "item", "category"] >> ops.Categorify(out_path=str(directory))
    prices = ["price"] >> price() >> nvt.ops.Normalize()
    rows = (
        ids
        + prices
        + ["time", "clicked"]
        >> ops.GroupHistories(
            user="user", item="item", order="time", label="clicked",
            split=split or ops.ByTime(TEST_FROM, validation=False), fit_on=fit_on, **more,
        )
    )  # fmt: skip
    return nvt.Workflow(rows)


def parted(log: pd.DataFrame, partitions: int) -> Dataset:
    """The log in partitions that have whole users."""
    names = sorted(log["user"].unique())
    part = log["user"].map({name: n % partitions for n, name in enumerate(names)})
    frames = [log[part == n].reset_index(drop=True) for n in range(partitions)]
    from dask import dataframe, delayed

    return Dataset(dataframe.from_delayed([delayed(frame) for frame in frames]), cpu=True)


def raw(workflow: nvt.Workflow, log: Dataset) -> dict:
    """By user, its items, labels and prices as keys and plain numbers, and its positions."""
    keys = {name: workflow_keys(workflow, name) for name in ("user", "item")}
    found = {}
    for row in workflow.transform(log).to_ddf().compute(scheduler="synchronous").to_dict("records"):
        user = keys["user"][row["user"]]
        positions = [
            row[f"{mapping}_{end}"] for mapping in ("train", "test") for end in ("begin", "end")
        ]
        found[user] = ([keys["item"][item] for item in row["item"]], list(row["role"]), positions)
    return found


def workflow_keys(workflow, name) -> list:
    from merlin.dag import iter_nodes

    for node in iter_nodes([workflow.output_node]):
        if isinstance(node.op, ops.Categorify) and name in node.op.categories:
            return [None, *node.op.keys(name).to_pylist()]
    raise KeyError(name)


def expected(log: pd.DataFrame) -> dict:
    """Each user's items by time, worked out by pandas; those of one time in any order."""
    return {
        user: [sorted(rows["item"]) for _, rows in of_user.groupby("time")]
        for user, of_user in log.groupby("user")
    }


def test_a_composed_workflow_makes_a_row_of_each_user(tmp_path):
    log = some_log()
    workflow = compose(tmp_path)
    workflow.fit(parted(log, 3))
    found = raw(workflow, parted(log, 3))
    wanted = expected(log)
    assert set(found) == set(wanted)
    for user, (items, roles, positions) in found.items():
        rows = log[log["user"] == user]
        assert sorted(items) == sorted(rows["item"])
        begin = 0
        for of_time in wanted[user]:
            assert sorted(items[begin : begin + len(of_time)]) == of_time
            begin += len(of_time)
        trains = (rows["time"] < TEST_FROM).sum()
        assert positions[1] == trains and positions[3] == len(rows)
        assert sum(role & 1 for role in roles) == rows["clicked"].sum()
    user, items = workflow.output_schema["user"], workflow.output_schema["item"]
    assert user.properties["domain"] == {"min": 0, "max": 50, "name": "user"}
    assert items.properties["domain"] == {"min": 0, "max": 40, "name": "item"}
    assert items.is_list and items.is_ragged and {Tags.ITEM, Tags.ID} <= set(items.tags)
    assert Tags.USER in user.tags


@pytest.mark.slow
def test_a_log_becomes_a_dataset_that_can_be_moved_and_used_again(tmp_path):
    log = parted(some_log(), 4)
    workflow = compose(tmp_path, fit_on="train")
    workflow.fit(ms.rows_that_train(workflow, log))
    written = ms.write_dataset(workflow, log, tmp_path / "here")
    assert written.users == 50 and written.interactions == 1000
    shutil.move(tmp_path / "here", tmp_path / "there")
    dataset = ms.DatasetDirectory.open(tmp_path / "there")
    assert dataset.channels["target_item_features"] == ["item_trgt", "category_trgt"]
    assert dataset.channels["target_item_numerical"] == ["price_trgt"]
    loaded = ms.load_workflow(tmp_path / "there")
    again = ms.write_dataset(loaded, log, tmp_path / "again")
    assert again.positions == written.positions
    for name in ("users", "categories"):
        for path in sorted((tmp_path / "there" / name).iterdir()):
            assert pq.read_table(path).equals(pq.read_table(tmp_path / "again" / name / path.name))
    assert not list((tmp_path / "there").rglob("*.pkl"))


def test_items_have_the_last_known_value_and_what_operators_make_of_it(tmp_path):
    log = some_log()
    workflow = compose(tmp_path)
    workflow.fit(Dataset(log, cpu=True))
    ms.write_dataset(workflow, Dataset(log, cpu=True), tmp_path / "dataset")
    table = pd.read_parquet(tmp_path / "dataset/categories/item.parquet").set_index("key")
    categories = pd.read_parquet(tmp_path / "dataset/categories/category.parquet")
    names = categories.set_index("id")["key"]
    items = log.drop_duplicates("item").set_index("item").loc[table.index]
    assert names[table["category"]].tolist() == items["category"].tolist()
    roots = np.sqrt(log["price"])
    wanted = (np.sqrt(items["price"]) - roots.mean()) / roots.std(ddof=1)
    np.testing.assert_allclose(table["price"], wanted, atol=1e-5)
    counts = log[log["clicked"] == 1]["item"].value_counts()
    assert table["count"].to_dict() == {key: counts.get(key, 0) for key in table.index}


def test_what_is_fitted_knows_nothing_of_rows_that_test(tmp_path):
    log = some_log()
    late = log["time"] >= TEST_FROM
    log.loc[late & (log.index % 7 == 0), "item"] = "only late"
    workflow = compose(tmp_path, fit_on="train")
    train = ms.rows_that_train(workflow, Dataset(log, cpu=True))
    pd.testing.assert_frame_equal(
        train.to_ddf().compute(scheduler="synchronous"), log[~late].reset_index(drop=True)
    )
    workflow.fit(train)
    written = ms.write_dataset(workflow, Dataset(log, cpu=True), tmp_path / "dataset")
    keys = pd.read_parquet(tmp_path / "dataset/categories/item.parquet")["key"]
    assert "only late" not in set(keys)
    assert written.interactions == (log["item"] != "only late").sum()


def test_each_users_last_interaction_may_test(tmp_path):
    log = Dataset(some_log(), cpu=True)
    workflow = compose(tmp_path, ops.LastInteraction(validation=False))
    workflow.fit(log)
    assert ms.write_dataset(workflow, log, tmp_path / "dataset").positions["test"] == 50
    assert workflow.output_node.op.rules.mappings == ("train", "test")
    assert "validation" in ops.GroupHistories("u", "i", "t").rules.mappings


@pytest.mark.slow
def test_users_in_several_partitions_are_refused(tmp_path):
    log = some_log()
    split = Dataset(log, npartitions=3, cpu=True)
    message = r"users \(column 'user'\) with rows in several partitions.*shuffle_by_keys"
    with pytest.raises(ms.MerlinSimError, match=message):
        compose(tmp_path).fit(split)
    workflow = compose(tmp_path)
    workflow.fit(Dataset(log, cpu=True))
    with pytest.raises(ms.MerlinSimError, match=message):
        ms.write_dataset(workflow, split, tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()
    shuffled = split.shuffle_by_keys(["user"])
    assert ms.write_dataset(workflow, shuffled, tmp_path / "dataset").users == 50


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_a_dask_cluster_fits_and_writes_the_same(tmp_path):
    from distributed import Client, LocalCluster
    from merlin.core.utils import set_dask_client

    from merlin_sim.workflows.schedulers import DaskCluster

    log = parted(some_log(), 4)
    alone = compose(tmp_path / "alone", price=nvt.ops.LogOp)
    alone.fit(log)
    ms.write_dataset(alone, log, tmp_path / "by one")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            set_dask_client(client)
            try:
                workflow = compose(tmp_path / "cluster", price=nvt.ops.LogOp)
                workflow.fit(log)
                ms.write_dataset(workflow, log, tmp_path / "by two", scheduler=DaskCluster(client))
            finally:
                set_dask_client("auto")  # Merlin keeps it after it is closed
    for path in sorted((tmp_path / "by one").rglob("*.parquet")):
        other = tmp_path / "by two" / path.relative_to(tmp_path / "by one")
        assert pq.read_table(path).equals(pq.read_table(other)), path


def test_what_cannot_be_fitted_or_written_is_refused(tmp_path):
    log, output = Dataset(some_log(), cpu=True), tmp_path / "dataset"
    with pytest.raises(ms.MerlinSimError, match="expected the columns user, item, time, clicked"):
        nvt.Workflow(
            ["user", "item"]
            >> ops.GroupHistories(user="user", item="item", order="time", label="clicked")
        ).fit(log)
    prices = nvt.Workflow(["price"] >> nvt.ops.Normalize())
    prices.fit(log)
    with pytest.raises(ms.MerlinSimError, match="ends in GroupHistories. Received: .* Normalize"):
        ms.write_dataset(prices, log, output)
    workflow = compose(tmp_path)
    with pytest.raises(ms.MerlinSimError, match="should be fitted before it writes"):
        ms.write_dataset(workflow, log, output)
    workflow.fit(log)
    lacking = Dataset(some_log().drop(columns=["price", "clicked"]), cpu=True)
    message = r"lacks columns that the workflow reads: (?=.*price)(?=.*clicked).*It has user, item"
    with pytest.raises(ms.MerlinSimError, match=message):
        ms.write_dataset(workflow, lacking, output)
    with pytest.raises(ms.MerlinSimError, match=message):
        ms.rows_that_train(workflow, lacking)
    unfit = some_log()
    unfit.loc[3, "price"] = -4.0
    with pytest.raises(ms.MerlinSimError, match="'price': expected a finite number of 32 bits"):
        compose(tmp_path, item_numbers=(), context_numbers=["price"]).fit(Dataset(unfit, cpu=True))
        workflow.fit(Dataset(unfit, cpu=True))
        ms.write_dataset(workflow, Dataset(unfit, cpu=True), output)
    assert not output.exists()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("clicked", 5, "'clicked': expected 0 or 1, found 5"),
        ("clicked", 0.99, "'clicked': expected 0 or 1, found 0.99"),
        ("clicked", None, "'clicked': expected 0 or 1, found nothing"),
        ("time", None, "'time': expected a number, found nothing"),
        ("user", None, "'user': expected a value, found nothing"),
        ("item", None, "'item': expected a value, found nothing"),
    ],
)
def test_rows_that_cannot_be_read_are_refused(column, value, message, tmp_path):
    log = some_log(2, 4)
    log.loc[3, column] = value
    ids = ["user", "item"] >> ops.Categorify(out_path=str(tmp_path))
    group = ops.GroupHistories("user", "item", "time", label="clicked", fit_on="all")
    workflow = nvt.Workflow(ids + ["time", "clicked"] >> group)
    with pytest.raises(ms.MerlinSimError, match=f"the log, row 4: {message}"):
        workflow.fit(Dataset(log, cpu=True))
        workflow.transform(Dataset(log, cpu=True)).to_ddf().compute(scheduler="synchronous")


def test_a_graph_may_make_the_label_of_the_log_s_column(tmp_path):
    log = some_log(2, 4)
    log["clicked"], log["time"] = np.arange(8) % 5 + 1, np.arange(8)
    ids = ["user", "item"] >> ops.Categorify(out_path=str(tmp_path))
    liked = ["clicked"] >> nvt.ops.LambdaOp(lambda stars: (stars > 3).astype("int64"))
    group = ops.GroupHistories("user", "item", "time", label="clicked")
    workflow = nvt.Workflow(ids + liked + ["time"] >> group)
    train = ms.rows_that_train(workflow, Dataset(log, cpu=True))
    held_out = log.groupby("user").tail(2).index
    assert train.to_ddf().compute()["time"].tolist() == log.drop(held_out)["time"].tolist()
    workflow.fit(Dataset(log, cpu=True))
    roles = np.concatenate(workflow.transform(Dataset(log)).to_ddf().compute()["role"].tolist())
    assert ((roles & 1) > 0).sum() == (log["clicked"] > 3).sum()


def test_time_intervals_need_the_unit_of_the_times(tmp_path):
    log = some_log(2, 4)
    log["time"] = 1_700_000_000_000 + log["time"] * 3_600_000
    ids = ["user", "item"] >> ops.Categorify(out_path=str(tmp_path))

    def fitted(**unit) -> nvt.Workflow:
        group = ops.GroupHistories("user", "item", "time", time_intervals="hours", **unit)
        return nvt.Workflow(ids + ["time"] >> group).fit(Dataset(log, cpu=True))

    with pytest.raises(ms.MerlinSimError, match="column 'time'.*They fit milliseconds since 1970"):
        fitted()
    rows = fitted(timestamp_unit="ms").transform(Dataset(log, cpu=True)).to_ddf().compute()
    seconds = np.sort(np.concatenate(rows["time"].tolist()))
    assert seconds.tolist() == (log["time"].sort_values() / 1000).tolist()


@pytest.mark.slow
def test_values_of_items_that_change_are_written_by_time(tmp_path):
    log = some_log()
    log["category"] = np.where(log["time"] < 40, "old", log["category"])
    workflow = compose(tmp_path)
    workflow.fit(Dataset(log, cpu=True))
    ms.write_dataset(workflow, parted(log, 3), tmp_path / "dataset")
    changes = pd.read_parquet(tmp_path / "dataset/item_changes/category.parquet")
    keys = pd.read_parquet(tmp_path / "dataset/categories/category.parquet").set_index("id")["key"]
    items = pd.read_parquet(tmp_path / "dataset/categories/item.parquet").set_index("id")["key"]
    for item, rows in changes.groupby("id"):
        seen = log[log["item"] == items[item]].groupby("time")["category"].last()
        first = seen[seen.ne(seen.shift())]
        assert keys[rows["value"]].tolist() == first.tolist()
        assert rows["time"].tolist() == first.index.tolist()
    fitted, some = ms.FittedWorkflow.load(tmp_path / "dataset"), log[log["user"] < "u05"]
    samples = fitted.samples(some, "test")
    assert len(samples) > 5 and "price_trgt" in samples
    with pytest.raises(ms.MerlinSimError, match="lacks columns that the workflow reads: price"):
        fitted.samples(some.drop(columns="price"), "test")


@ops.register(name="tests.Named")
class Named(nvt.ops.StatOperator):
    """An operator of one's own that learned something of the name that others keep files under."""

    def fit(self, col_selector, ddf):
        return ddf[col_selector.names].max()

    def fit_finalize(self, dask_stats):
        self.vocabularies = list(dask_stats.index)

    def clear(self):
        pass

    def transform(self, col_selector, df):
        return df[col_selector.names]

    def get_config(self):
        return {}

    def get_learned(self, directory):
        return {"vocabularies": self.vocabularies}

    def set_learned(self, learned, directory):
        self.vocabularies = learned["vocabularies"]


def rows_of(ids, numbers, name) -> nvt.Workflow:
    group = ops.GroupHistories(
        user="user", item="item", order="time", split=ops.ByTime(TEST_FROM, validation=False),
        fit_on="all", user_numbers=(name,),
    )  # fmt: skip
    return nvt.Workflow(ids + numbers + ["time"] >> group)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "name"),
    [*JOINED, pytest.param(lambda out: ["price"] >> Named(), "price", id="one of one's own")],
)
def test_a_dataset_with_operators_that_keep_files_is_loaded_elsewhere(tmp_path, operator, name):
    log = Dataset(some_log(), cpu=True)
    ids = ["user", "item"] >> ops.Categorify(out_path=str(tmp_path))
    workflow = rows_of(ids, operator(str(tmp_path))[name] >> nvt.ops.Normalize(), name)
    workflow.fit(log)
    ms.write_dataset(workflow, log, tmp_path / "made")
    wanted = workflow.transform(log).to_ddf().compute(scheduler="synchronous")
    shutil.move(tmp_path / "made", tmp_path / "moved")
    fitted = ms.FittedWorkflow.load(tmp_path / "moved")
    for loaded in (fitted.workflow, ms.load_workflow(tmp_path / "moved")):
        found = loaded.transform(log).to_ddf().compute(scheduler="synchronous")
        pd.testing.assert_frame_equal(found, wanted)


@pytest.mark.slow
def test_an_altered_vocabulary_of_a_joint_group_is_refused(tmp_path):
    rows = some_log()
    log = Dataset(rows.assign(second=rows["category"].replace("c4", "c9")), cpu=True)
    ids = ["user", "item", ["category", "second"]] >> ops.Categorify(out_path=str(tmp_path))
    workflow = nvt.Workflow(
        ids + ["time"] >> ops.GroupHistories("user", "item", "time", fit_on="all")
    )
    workflow.fit(log)
    ms.write_dataset(workflow, log, tmp_path / "made")
    users_to_samples(DatasetDirectory.open(tmp_path / "made"), tmp_path / "samples", Silence())
    for name in ("made", "samples"):
        domains = ("user", "item", "category", "second")
        assert ms.FittedWorkflow.load(tmp_path / name).domains == domains
    for file in ("category", "second", "unique.category_second"):
        path: Path = next((tmp_path / "made").rglob(f"{file}.parquet"))
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b"x")
        for load in (ms.FittedWorkflow.load, ms.load_workflow):
            with pytest.raises(ms.MerlinSimError, match=f"/{file}.parquet: not the file that"):
                load(tmp_path / "made")
        path.write_bytes(content)


ENCODINGS = {
    "JoinGroupby": lambda label, out: (
        ["item"] >> nvt.ops.JoinGroupby(cont_cols=label, stats=["mean"], out_path=out)
    ),
    "TargetEncoding": lambda label, out: (
        ["category"] >> nvt.ops.TargetEncoding(label, kfold=5, out_path=out)
    ),
}


@pytest.mark.parametrize(
    ("operator", "label", "asked"),
    [
        ("JoinGroupby", "clicked", "fit"),
        ("JoinGroupby", "renamed", "rows that train"),
        ("TargetEncoding", "renamed", "dataset"),
        ("TargetEncoding", "clicked", "rows that train"),
    ],
)
def test_encodings_that_see_their_own_label_are_refused(operator, label, asked, tmp_path):
    given, out = ["clicked"], str(tmp_path)
    if label == "renamed":
        given = given >> nvt.ops.Rename(name=label)
    encoded = ENCODINGS[operator](given, out) >> nvt.ops.Normalize()
    ids = ["user", "item"] >> ops.Categorify(out_path=out)
    group = ops.GroupHistories("user", "item", "time", label="clicked")
    graph = ids + encoded + ["time", "clicked"] >> group
    log = Dataset(some_log(), cpu=True)
    message = f"_{label}.* .{operator}.: .*made of the label 'clicked'.*`encodings`"
    with pytest.raises(ms.MerlinSimError, match=message):
        if asked == "fit":
            ops.Workflow(graph).fit(log)
        workflow = nvt.Workflow(graph)
        if asked == "rows that train":
            ms.rows_that_train(workflow, log)
        workflow.fit(log)
        ms.write_dataset(workflow, log, tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()


@pytest.mark.parametrize(
    ("split", "ways"),
    [
        (ops.ByTime(TEST_FROM), [("train", "train"), ("train", "all")]),
        (ops.LastInteraction(), [("train", "all"), ("all", "all")]),
    ],
)
def test_a_fit_on_rows_that_test_is_warned_of(split, ways, tmp_path):
    log = Dataset(some_log(), cpu=True)
    for fit_on, rows in ways:
        workflow = compose(tmp_path / "keys", split, fit_on=fit_on)
        train = ms.rows_that_train(workflow, log)
        workflow.fit(log if rows == "all" else train)
        doubted = pytest.warns(DatasetWarning, match="fitted on [0-9]+ rows that validate or test")
        with doubted if fit_on != rows else nullcontext():
            written = ms.write_dataset(workflow, log, tmp_path / "made", overwrite=True)
        assert written.read == 1000
        assert set(written.positions) == {"train", "validation", "test"}
        assert (train.num_rows < 1000) == (fit_on == "train")


def test_the_newest_tenth_of_what_would_train_validates(tmp_path):
    log, border = some_log(), pd.Timestamp("2024-03-11")
    log["time"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(log["time"], "D")
    workflow = compose(tmp_path, ops.ByTime(border), fit_on="train")
    assert workflow.output_node.op.rules.mappings == ("train", "test")
    rows = ms.rows_that_train(workflow, parted(log, 3))
    train = rows.to_ddf().compute(scheduler="synchronous")
    before = log[log["time"] < border]
    newest = before["time"].sort_values().iloc[int(0.9 * len(before))]
    assert train["time"].max() < newest and len(train) == (before["time"] < newest).sum()
    workflow.fit(rows)
    found = workflow.transform(parted(log, 3)).to_ddf().compute(scheduler="synchronous")
    validates = found["validation_end"] - found["validation_begin"]
    assert validates.sum() == len(before) - len(train)


def test_as_many_users_validate_as_test():
    for given, share in ((True, 0.2), (0.1, 0.1), (False, None)):
        rules = ops.GroupHistories("u", "i", "t", split=ops.ByUsers(0.2, given)).rules
        assert rules.split is not None and rules.split.validation_users == share
        assert ("validation" in rules.mappings) == bool(given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.GroupHistories("u", "i", "t", split="newest"), "`split` should be .*'newest'"),
        (lambda: ops.GroupHistories("u", "i", "t", time_intervals="years"), "`time_intervals`"),
        (lambda: ops.GroupHistories("u", "i", "t", timestamp_unit="h"), "`timestamp_unit` .* ms"),
        (lambda: ops.GroupHistories("u", "i", "t", item_lists={"x": 0}), "list of 'x': .* 0"),
        (lambda: ops.GroupHistories("u", "i", "t", item_vectors={"x": 0}), "vector 'x': .* 0"),
        (lambda: ops.GroupHistories("u", "i", "t", fit_on="test"), "`fit_on` should be train or"),
        (lambda: ops.SplitKeys(0), "`longest`: expected a whole number of 1 or more. .* 0"),
        (lambda: ops.SplitKeys(3, ""), "`separator`"),
        (lambda: ops.ByTime(3, 2, validation=False), "`validation_from` needs `validation`"),
    ],
)
def test_arguments_are_checked_where_they_are_given(make, message):
    with pytest.raises(ms.MerlinSimError, match=message):
        make()


@pytest.mark.parametrize("column", ["user", "category"])
def test_ids_of_a_hash_are_refused(column, tmp_path):
    """Id 0 pads: rows of bucket 0 would be gone."""
    others = [name for name in ("user", "item") if name != column]
    ids = others >> ops.Categorify(out_path=str(tmp_path))
    hashed = [column] >> nvt.ops.HashBucket(7)
    log = Dataset(some_log(), cpu=True)
    group = ops.GroupHistories("user", "item", "time")
    with pytest.raises(ms.MerlinSimError, match=f"{column!r}: expected ids of Categorify, found"):
        nvt.Workflow(ids + hashed + ["time"] >> group).fit(log)
    keys = [column] >> nvt.ops.HashBucket(7) >> ops.Categorify(out_path=str(tmp_path))
    group = ops.GroupHistories("user", "item", "time")
    workflow = nvt.Workflow(ids + keys + ["time"] >> group).fit(log)
    assert 1 < workflow.output_node.op.sizes[column] <= 7


def test_keys_of_nvtabular_s_own_categorify_are_written(tmp_path):
    log, made = Dataset(some_log(), cpu=True), {}
    for kind in (ops.Categorify, nvt.ops.Categorify):
        folder = tmp_path / kind.__module__
        ids = ["user", "item", "category"] >> kind(out_path=str(folder / "keys"))
        group = ops.GroupHistories("user", "item", "time", fit_on="all")
        workflow = nvt.Workflow(ids + ["time"] >> group).fit(log)
        ms.write_dataset(workflow, log, folder / "made")
        made[kind] = folder / "made"
    ours, theirs = made.values()
    for path in [*ours.glob("users/*.parquet"), *ours.glob("categories/*.parquet")]:
        assert pq.read_table(path).equals(pq.read_table(theirs / path.relative_to(ours))), path
    assert ms.FittedWorkflow.load(theirs).domains == ("user", "item", "category")


def test_ids_without_a_key_are_refused_when_they_are_written(tmp_path):
    log = Dataset(some_log(), cpu=True)
    ids = ["user", "item"] >> ops.Categorify(out_path=str(tmp_path), num_buckets=3)
    group = ops.GroupHistories("user", "item", "time", fit_on="all")
    workflow = nvt.Workflow(ids + ["time"] >> group).fit(log)
    with pytest.raises(ms.MerlinSimError, match="expected a file with the key of each of its"):
        ms.write_dataset(workflow, log, tmp_path / "made")


def test_a_user_that_the_graph_renames_is_refused_by_name(tmp_path):
    log = Dataset(some_log().rename(columns={"user": "uid"}), cpu=True)
    renamed = ["uid"] >> nvt.ops.Rename(name="user")
    ids = renamed + ["item"] >> ops.Categorify(out_path=str(tmp_path))
    workflow = nvt.Workflow(ids + ["time"] >> ops.GroupHistories("user", "item", "time"))
    with pytest.raises(ms.MerlinSimError, match="`user` and `item` are read as the log has them"):
        workflow.fit(log)


def test_tags_and_properties_of_one_s_own_are_kept(tmp_path):
    price = ["price"] >> nvt.ops.AddMetadata(["mine", Tags.CONTEXT], {"unit": "pence"})
    ids = ["user", "item"] >> ops.Categorify(out_path=str(tmp_path)) >> nvt.ops.AddTags(["key"])
    group = ops.GroupHistories("user", "item", "time", context_numbers=["price"])
    workflow = nvt.Workflow(ids + price + ["time"] >> group).fit(Dataset(some_log(), cpu=True))
    user, item, price = (workflow.output_schema[name] for name in ("user", "item", "price"))
    assert {"key", Tags.USER, Tags.ID, Tags.CATEGORICAL} <= set(user.tags)
    assert {"key", Tags.ITEM, Tags.ID, Tags.SEQUENCE} <= set(item.tags)
    assert "mine" in price.tags and price.properties["unit"] == "pence"
    assert "cat_path" not in {*user.properties, *item.properties}
    logs = nvt.Workflow(["price"] >> ops.LogNumbers()).fit_schema(Dataset(some_log()).schema)
    assert Tags.CONTINUOUS in logs.output_schema["price"].tags


def test_a_workflow_of_the_package_refuses_what_nvtabular_s_own_cannot_see(tmp_path):
    whole, split = parted(some_log(), 3), Dataset(some_log(), npartitions=3, cpu=True)
    workflow = ops.Workflow(compose(tmp_path).output_node).fit(whole)
    assert len(workflow.transform(whole).to_ddf().compute(scheduler="synchronous")) == 50
    with pytest.raises(ms.MerlinSimError, match="several partitions"):
        workflow.transform(split)
