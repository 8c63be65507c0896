"""One row per user: what is written, and that its samples are those of the other layout."""

from __future__ import annotations

import filecmp

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_users import as_rows, in_order

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory

RULES = ["--max_sequence_length", 30, "--shortest_sequence_for_training", 2]


@pytest.fixture(scope="module")
def both(raw, preprocess, tmp_path_factory):
    """The same log in both layouts."""
    directory = tmp_path_factory.mktemp("both")
    return [
        preprocess(raw, directory / layout, "--layout", layout, *RULES)
        for layout in ("samples", "users")
    ]


def fed(directory, mapping, **options):
    dataset = DatasetDirectory.open(directory)
    feed = open_loader(dataset, mapping, dataset.schema.column_names, 256, Ranks(), **options)
    batches = [
        as_rows({"label": label.numpy(), **{n: x.numpy() for n, x in inputs.items()}})
        for inputs, label in feed
    ]
    return np.concatenate(batches)


@pytest.mark.parametrize("mapping", ["train", "test"])
def test_the_samples_are_those_of_the_other_layout_row_for_row(both, mapping):
    samples, users = both
    stored, made = fed(samples, mapping), fed(users, mapping, shuffle=True)
    assert len(stored) > 150
    np.testing.assert_array_equal(in_order(made), in_order(stored))


def test_transcoding_gives_the_files_of_the_other_layout(both, run_cli, tmp_path):
    samples, users = both
    result = run_cli("data", "transcode", "--input", users, "--output", tmp_path / "made")
    assert result.exit_code == 0, result.output
    names = sorted(str(p.relative_to(samples)) for p in samples.rglob("*") if p.is_file())
    assert names == sorted(
        str(p.relative_to(tmp_path / "made")) for p in (tmp_path / "made").rglob("*") if p.is_file()
    )
    _, different, errors = filecmp.cmpfiles(samples, tmp_path / "made", names, shallow=False)
    assert different == errors == []


def test_a_row_holds_the_whole_history_and_where_its_samples_are(both):
    users = pq.read_table(both[1] / "users/part.0.parquet").to_pandas()
    lengths = users["item_id"].map(len)
    assert lengths.max() > 30  # longer than a sample shows
    assert (users["test_end"] == lengths).all()
    assert (users["test_begin"] == lengths - 1).all()
    assert (users["train_begin"] == 2).all()
    assert (users["train_end"] == lengths - 1).all()
    samples = pd.read_parquet(both[0] / "test/part.0.parquet").query("label == 1")
    newest = users.set_index("user_id")["item_id"].map(lambda items: items[-1])
    assert samples.set_index("user_id")["item_id_trgt"].sort_index().tolist() == (
        newest.sort_index().tolist()
    )


def test_the_users_of_the_next_day_have_the_ids_of_the_day_before(both, raw, preprocess, tmp_path):
    samples, users = both
    again = preprocess(raw, tmp_path / "again", "--layout", "users", "--fitted", samples)
    assert filecmp.cmp(again / "users/part.0.parquet", users / "users/part.0.parquet", False)


def write_log(path):
    random = np.random.default_rng(3)
    rows = 900
    user, item = random.integers(0, 20, rows), random.integers(0, 40, rows)
    pd.DataFrame(
        {
            "who": [f"u{u}" for u in user],
            "what": [f"i{i}" for i in item],
            "when": np.arange(rows),
            "country": [f"c{u % 3}" for u in user],
            "kind": [f"k{i % 7}" for i in item],
            "brand": [f"b{i % 5}" for i in item],
        }
    ).to_csv(path, index=False)
    return [
        path, "--user_column", "who", "--item_column", "what", "--timestamp_column", "when",
        "--user_feature_columns", "country", "--item_feature_columns", "kind,brand",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_log_of_its_own_with_features_of_users_and_items(run_cli, tmp_path):
    log = write_log(tmp_path / "log.csv")
    options = ["--negatives", "uniform", "--negatives_per_positive", "3"]
    reported = []
    for layout in ("samples", "users"):
        result = run_cli(
            "preprocess", "log", *log, "--output_path", tmp_path / layout,
            "--layout", layout, *options,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        reported.append(result.output.partition("rows")[0])
    assert reported[0] == reported[1]
    stored, made = (fed(tmp_path / layout, "train") for layout in ("samples", "users"))
    np.testing.assert_array_equal(in_order(made), in_order(stored))
    again = run_cli(
        "data", "transcode", "--input", tmp_path / "users", "--output", tmp_path / "again"
    )
    assert again.exit_code == 0, again.output
    parts = sorted(path.name for path in (tmp_path / "samples/train").iterdir())
    same = filecmp.cmpfiles(tmp_path / "samples/train", tmp_path / "again/train", parts, False)
    assert same == (parts, [], [])


@pytest.mark.slow
def test_time_intervals_are_those_of_the_other_layout(run_cli, tmp_path):
    """To the bit, from what the feed makes and from the files that transcoding writes."""
    log = write_log(tmp_path / "log.csv")
    frame = pd.read_csv(log[0])
    frame["when"] = np.cumsum(np.random.default_rng(5).exponential(5e4, len(frame))).round(3)
    frame.to_csv(log[0], index=False)
    (tmp_path / "features.yaml").write_text("time_intervals: days\ntimestamp_unit: s")
    samples, users = tmp_path / "samples", tmp_path / "users"
    options = ("--features", tmp_path / "features.yaml", "--max_sequence_length", 9)
    for path in (samples, users):
        result = run_cli(
            "preprocess", "log", *log, "--output_path", path, "--layout", path.name, *options
        )
        assert result.exit_code == 0, result.output
    stored, made = (fed(path, "train") for path in (samples, users))
    np.testing.assert_array_equal(in_order(made), in_order(stored))
    assert np.any(stored % 1)  # parts of days
    result = run_cli("data", "transcode", "--input", users, "--output", tmp_path / "made")
    assert result.exit_code == 0, result.output
    names = [str(p.relative_to(samples)) for p in samples.rglob("*") if p.is_file()]
    assert filecmp.cmpfiles(samples, tmp_path / "made", names, shallow=False)[1:] == ([], [])
    checked = run_cli("data", "check", users)
    assert checked.exit_code == 0, checked.output
    shown = run_cli("data", "spec", "show", users)
    assert "column when, in seconds; intervals in days" in " ".join(shown.output.split())


@pytest.mark.slow
def test_columns_may_be_called_as_users_rows_call_theirs(run_cli, tmp_path):
    """Users' rows have columns beside the log's; those get another name then."""
    log = write_log(tmp_path / "log.csv")
    names = ["train_end", "role", "same_time_before", "item_id"]
    frame = pd.read_csv(log[0])
    frame.assign(**dict.fromkeys(names, frame["country"])).to_csv(log[0], index=False)
    log = [",".join(names) if option == "country" else option for option in log]
    made = []
    for layout in ("samples", "users"):
        out = tmp_path / layout
        result = run_cli("preprocess", "log", *log, "--output_path", out, "--layout", layout)
        assert result.exit_code == 0, result.output
        made.append(fed(out, "train"))
    np.testing.assert_array_equal(*map(in_order, made))


@pytest.mark.slow
def test_negatives_that_the_user_has_not(run_cli, tmp_path):
    log = write_log(tmp_path / "log.csv")
    options = ("preprocess", "log", *log, "--negatives_not_in_history")
    for layout in ("samples", "users"):
        result = run_cli(*options, "--output_path", tmp_path / layout, "--layout", layout)
        assert result.exit_code == 0, result.output
    samples, users = (tmp_path / layout for layout in ("samples", "users"))
    assert DatasetDirectory.open(users).users.negatives_not_in_history
    np.testing.assert_array_equal(*(in_order(fed(path, "train")) for path in (samples, users)))
    channels = DatasetDirectory.open(samples).channels
    user, item = (channels[name][0] for name in ("user_features", "target_item_features"))
    rows = pd.concat([pd.read_parquet(samples / name) for name in ("train", "test")])
    taken = set(rows.loc[rows.label == 1, [user, item]].itertuples(index=False, name=None))
    drawn = set(rows.loc[rows.label == 0, [user, item]].itertuples(index=False, name=None))
    assert len(drawn) > 10 and not drawn & taken
    options = ("preprocess", "log", log[0], "--output_path", tmp_path / "again", "--fitted", users)
    result = run_cli(*options, "--layout", "users")
    assert result.exit_code == 0, result.output
    assert DatasetDirectory.open(tmp_path / "again").users.negatives_not_in_history


@pytest.mark.slow
def test_uniform_negatives_do_not_follow_popularity(run_cli, tmp_path):
    rows = 4000
    item = np.where(np.arange(rows) % 20, 0, np.arange(rows) // 20 % 10 + 1)
    frame = pd.DataFrame({"who": np.arange(rows) % 40, "what": item, "when": np.arange(rows)})
    frame.to_csv(tmp_path / "log.csv", index=False)
    shares = {}
    for negatives in ("popularity", "uniform"):
        result = run_cli(
            "preprocess", "log", tmp_path / "log.csv", "--output_path", tmp_path / negatives,
            "--user_column", "who", "--item_column", "what", "--timestamp_column", "when",
            "--negatives", negatives,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        drawn = np.concatenate(pd.read_parquet(tmp_path / negatives / "train")["what_neg"])
        shares[negatives] = np.mean(drawn == 1)
    assert shares["popularity"] == pytest.approx(0.95, abs=0.02)
    assert shares["uniform"] == pytest.approx(1 / 11, abs=0.02)


def test_padding_is_refused_for_users(run_cli, tmp_path):
    log = write_log(tmp_path / "log.csv")
    result = run_cli(
        "preprocess", "log", *log, "--output_path", tmp_path / "made", "--layout", "users", "--pad"
    )
    assert isinstance(result.exception, MerlinSimError)
    assert "`pad` is of the samples layout" in str(result.exception)
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
def test_transcoding_refuses_a_user_that_cannot_be(run_cli, tmp_path):
    log = write_log(tmp_path / "log.csv")
    run_cli("preprocess", "log", *log, "--output_path", tmp_path / "users", "--layout", "users")
    path = tmp_path / "users/users/part.0.parquet"
    table = pq.read_table(path)
    items = table["what"].to_pylist()
    items[2][7] = 41
    column = table.schema.get_field_index("what")
    changed = pa.array(items, table.schema.field(column).type)
    pq.write_table(table.set_column(column, table.schema.field(column), changed), path)
    result = run_cli(
        "data", "transcode", "--input", tmp_path / "users", "--output", tmp_path / "made"
    )
    message = str(result.exception)
    assert (
        "row 3 (user " in message
        and "position 7: column what should hold ids of 1 to 40" in message
    )
    assert not (tmp_path / "made").exists()
