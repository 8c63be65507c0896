from __future__ import annotations

import gzip
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.channels import BEHAVIOUR
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.workflows.behaviour_columns import BehaviourColumns
from merlin_sim.workflows.table_log import TableLog

OPTIONS = (
    "--user_feature_columns", "country,device", "--item_feature_columns", "brand, price band",
    "--shortest_sequence_for_user", 3, "--order_of_equal_times", "log", "--validation", "none",
)  # fmt: skip


def make_log(users=40, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(users), rng.integers(1, 9, users))
    what = rng.integers(100, 130, len(who))
    return pd.DataFrame(
        {
            "when": rng.integers(0, 50, len(who)) * 1000,
            "who": who * 7 + 3,
            "what": what,
            "country": np.where(who % 3 == 0, "PT", "SE"),
            "device": (who % 2) + 5,
            "brand": [f"b{item % 4}" for item in what],
            "price band": [["low", "high"][item % 2] for item in what],
            "ignored": rng.random(len(who)),
        }
    )


@pytest.fixture
def run(preprocess_log, tmp_path):
    """Preprocess files into `dataset` or another directory; gives what the command printed."""

    def run(*files, output="dataset"):
        return preprocess_log(tmp_path / output, *files)[1]

    return run


def raw_keys(dataset, mapping):
    opened = DatasetDirectory.open(dataset)
    frame = pd.concat([pd.read_parquet(file) for file in opened.files(mapping)])
    for name in list(frame)[1:]:
        domain = opened.schema[name].properties["domain"]["name"]
        table = pd.read_parquet(dataset / "categories" / f"{domain}.parquet")
        key = dict(zip(table["id"], table["key"], strict=True))
        if name.endswith(("_pos", "_neg")):
            frame[name] = [tuple(key[i] for i in ids) for ids in frame[name]]
        else:
            frame[name] = frame[name].map(key)
    return frame


def plain_test_rows(log: pd.DataFrame) -> Counter:
    rows = Counter()
    log = log[log.groupby("who")["what"].transform("size") >= 3]
    for who, events in log.sort_values("when", kind="stable").groupby("who"):
        last, items = events.iloc[-1], tuple(events["what"])
        rows[(who, last["country"], last["device"], items[-1], items[:-1])] += 1
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_any_columns_become_a_dataset(kind, tmp_path, run):
    log = make_log()
    if kind == "parquet":
        half = len(log) // 2
        log[:half].to_parquet(tmp_path / "a.parquet", row_group_size=20)
        log[half:].to_parquet(tmp_path / "b.parquet")
        files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    else:
        files = [tmp_path / f"log.{kind}"]
        log.to_csv(files[0], index=False)
        log = log.astype({"who": str, "what": str, "device": str})
    run(*files, *OPTIONS)

    opened = DatasetDirectory.open(tmp_path / "dataset")
    BEHAVIOUR.check(opened.spec)
    assert opened.channels["user_features"] == ["who", "country", "device"]
    assert opened.channels["positive_history"] == ["what_pos", "brand_pos", "price band_pos"]
    rows = raw_keys(tmp_path / "dataset", "test")
    positive = rows[rows["label"] == 1]
    names = ["who", "country", "device", "what_trgt", "what_pos"]
    assert Counter(positive[names].itertuples(index=False, name=None)) == plain_test_rows(log)
    for part in ("trgt", "pos", "neg"):
        items = rows[f"what_{part}"].explode().dropna().astype(int)
        brands = rows[f"brand_{part}"].explode().dropna()
        assert [f"b{item % 4}" for item in items] == list(brands)


@pytest.mark.slow
def test_columns_stored_as_dictionaries_are_read(tmp_path, run):
    """As pandas writes categorical columns; labels may be such, too."""
    log = make_log().drop(columns="ignored")
    log["clicked"] = np.where(log["what"] % 2 > 0, "1", "0")
    for kind, of in {"plain": log, "dictionaries": log.astype("category")}.items():
        of.assign(when=log["when"]).to_parquet(tmp_path / f"{kind}.parquet")
        label = ("--label_column", "clicked", "--layout", "users")
        run(tmp_path / f"{kind}.parquet", *OPTIONS, *label, output=kind)
    for name in ("users", *(f"categories/{name}.parquet" for name in ("who", "what", "country"))):
        plain, read = (pq.read_table(tmp_path / kind / name) for kind in ("plain", "dictionaries"))
        assert plain.equals(read)


HEADER = "when,who,what,country,device,brand,price band\n"
GOOD = "1,u,x,PT,a,b,c\n2,u,y,PT,a,b,c\n3,u,z,PT,a,b,c\n"


BAD_LINES = {
    "4,,x,PT,a,b,c\n": "'who': expected a value, found nothing",
    "4,u,,PT,a,b,c\n": "'what': expected a value, found nothing",
    "soon,u,x,PT,a,b,c\n": "'when': expected a whole number, found 'soon'",
    "4,u,x\n": "expected 7 fields, found 3",
    "4,u,x,PT,a,b,c,d\n": "expected 7 fields, found 8",
    "4,u,\xe9,PT,a,b,c\n": "'what': expected a value, found b'\\xe9'",
    "4,u,x,\xe9,a,b,c\n": "'country': expected a value, found b'\\xe9'",
}


@pytest.mark.slow
def test_a_bad_row_is_refused_with_its_line_or_left_out(tmp_path, run):
    path = tmp_path / "log.csv"
    for line, reason in BAD_LINES.items():
        path.write_bytes((HEADER + GOOD + line + GOOD + line).encode("latin-1"))
        with pytest.raises(MerlinSimError) as error:
            run(path, *OPTIONS)
        assert f"log.csv, line 5: {reason}" in str(error.value)
        assert not (tmp_path / "dataset").exists()
    first, *others = BAD_LINES
    path.write_bytes((HEADER + GOOD + first + GOOD + "".join(others)).encode("latin-1"))
    said = run(path, *OPTIONS, "--on_bad_rows", "skip", "--layout", "users")
    assert f"log.csv: {len(BAD_LINES)} bad rows left out (line 5: " in said
    assert "line 9: " in said
    assert "6 interactions read" in said


@pytest.mark.slow
def test_bad_rows_of_parquet(tmp_path, run):
    log = make_log()
    log["who"] = log["who"].astype("Int64")
    log.loc[30, "who"] = None
    log.to_parquet(tmp_path / "log.parquet", row_group_size=20)
    arguments = (tmp_path / "log.parquet", *OPTIONS)
    with pytest.raises(MerlinSimError, match="line 31: 'who': expected a value, found nothing"):
        run(*arguments)
    skip = ("--on_bad_rows", "skip", "--layout", "users")
    assert "1 bad rows left out" in run(*arguments, *skip)


def test_columns_and_types_are_checked_before_any_work(tmp_path, run):
    log = make_log().rename(columns={"who": "user"})
    log["what"] = log["what"] / 2
    log["when"] = log["when"] > 3
    log.to_parquet(tmp_path / "log.parquet")
    with pytest.raises(MerlinSimError) as error:
        run(tmp_path / "log.parquet", *OPTIONS)
    message = str(error.value)
    assert "expected a column 'who', found only when, user" in message

    words = "column 'what': expected text or whole numbers, found floating-point numbers (double)"
    assert words in message
    assert "column 'when': expected numbers or dates, or text of them, found" in message


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_stands_twice_is_refused(kind, tmp_path):
    table = pa.table([pa.array([1, 2])] * 4, ["who", "what", "when", "who"])
    path = tmp_path / f"log.{kind}"
    if kind == "csv":
        path.write_text("who,what,when,who\n1,2,3,4\n")
    else:
        pq.write_table(table, path)
    with pytest.raises(MerlinSimError, match=f"log.{kind}: expected one column 'who', found who,"):
        TableLog([path], BehaviourColumns("who", "what", "when")).blocks()


def test_files_that_do_not_fit_together(tmp_path, run):
    make_log().to_parquet(tmp_path / "a.parquet")
    make_log().astype({"who": str}).to_parquet(tmp_path / "b.parquet")
    make_log().to_csv(tmp_path / "c.csv", index=False)
    (tmp_path / "d.parquet").write_text("no parquet")
    (tmp_path / "e.csv").write_text("")
    (tmp_path / "g.parquet").mkdir()
    for names, message in [
        ("ab", r"column 'who': expected whole numbers \(int64\) as in .*a.parquet, found text \(s"),
        ("ac", "not both"),
        ("d", "d.parquet: expected a parquet file, got"),
        ("e", "e.csv: expected CSV or parquet"),
        ("f", "f.parquet: no such file"),
        ("g", "g.parquet: expected a directory of CSV .* files, found none"),
    ]:
        files = [tmp_path / f"{n}.{'csv' if n in 'ce' else 'parquet'}" for n in names]
        with pytest.raises(MerlinSimError, match=message):
            run(*files, *OPTIONS)


def test_a_row_of_too_many_fields_that_is_no_text_is_reported_once(tmp_path, run, monkeypatch):
    """Arrow printed a traceback beside its error: it could not decode what it was to hand on."""
    printed = []
    monkeypatch.setattr("sys.unraisablehook", printed.append)
    text = (HEADER + GOOD + "4,u,x,PT,a,b,c,\xe9\n").encode("latin-1")
    (tmp_path / "log.csv").write_bytes(text)
    with pytest.raises(MerlinSimError, match=r"log.csv.*Row #5: Expected 7 columns, got 8"):
        run(tmp_path / "log.csv", *OPTIONS)
    assert not printed


def test_a_cut_gzip_is_reported(tmp_path, run):
    make_log(3000).to_csv(tmp_path / "whole.csv", index=False)
    packed = gzip.compress((tmp_path / "whole.csv").read_bytes())
    (tmp_path / "log.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(MerlinSimError, match="log.csv.gz: cannot be read|log.csv.gz, after row"):
        run(tmp_path / "log.csv.gz", *OPTIONS)
    assert not (tmp_path / "dataset").exists()


@pytest.mark.parametrize("name", ["id", "key", "count", "shown"])
def test_an_items_feature_is_not_called_like_a_column_of_its_table(name, tmp_path, run):
    make_log().assign(**{name: 3}).to_csv(tmp_path / "log.csv", index=False)
    features = tmp_path / "features.yaml"
    features.write_text(f"features:\n  {name}: {{type: number, of: item}}\n")
    for option, given in (("--item_feature_columns", name), ("--features", features)):
        with pytest.raises(MerlinSimError, match=f"should not be called id.* Received: {name}."):
            run(tmp_path / "log.csv", *OPTIONS, option, given)
    with pytest.raises(MerlinSimError, match="Received more than once: who"):
        run(tmp_path / "log.csv", "--item_column", "who")
    assert not (tmp_path / "dataset").exists()


@pytest.mark.slow
def test_timestamps_of_any_kind_sort(tmp_path, run):
    base, expected = make_log(), None
    whole = pd.Timestamp("2024-01-01") + pd.to_timedelta(base["when"], "s")
    text = pa.array(base["when"].astype(str), pa.large_string())
    for number, when in enumerate([text, base["when"] / 7, whole]):
        table = pa.Table.from_pandas(base, preserve_index=False)
        table = table.set_column(0, "when", pa.array(when))
        pq.write_table(table, tmp_path / f"{number}.parquet")
        run(tmp_path / f"{number}.parquet", *OPTIONS, "--layout", "users")
        rows = (tmp_path / "dataset/users/part.0.parquet").read_bytes()
        assert expected in (None, rows)
        expected = rows


@pytest.mark.parametrize(
    ("first", "expected"), [("5", "a whole number"), ("2024-01-01", "a date and time")]
)
def test_a_text_that_is_no_time_is_refused_in_parquet_too(first, expected, tmp_path, run):
    log = make_log().assign(when=first)
    log.loc[33, "when"] = "soon"
    log.to_parquet(tmp_path / "soon.parquet", row_group_size=30)
    with pytest.raises(MerlinSimError, match=f"line 34: 'when': expected {expected}.*'soon'"):
        run(tmp_path / "soon.parquet", *OPTIONS)


def write_rows(path, **columns):
    table = {"who": ["u"] * 3, "what": [1, 2, 3], "when": [1, 2, 3], **columns}
    pq.write_table(pa.table(table), path)
    return path


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("what", pa.array([1, 2, 2**64 - 1], pa.uint64()), "line 3: 'what': expected a value, fou"),
        ("when", pa.array([1, 2**63, 3], pa.uint64()), "line 2: 'when': expected a whole number"),
        ("who", pa.array([b"u", b"u", b"\xff"]).view("string"), r"line 3: .*found b'\\xff'"),
        ("when", pa.nulls(3), "numbers or dates, or text of them, found nulls only"),
        ("what", pa.array([1] * 3, pa.time64("us")), r"text or whole numbers, found times \(time"),
    ],
)
def test_values_of_parquet_that_cannot_be_taken(column, values, message, tmp_path, run):
    file = write_rows(tmp_path / "log.parquet", **{column: values})
    with pytest.raises(MerlinSimError, match=f"log.parquet.*{message}"):
        run(file)


def test_a_damaged_page_is_reported_with_its_file_and_place(tmp_path, run):
    file = write_rows(tmp_path / "log.parquet")
    chunk = pq.read_metadata(file).row_group(0).column(1)
    whole = bytearray(file.read_bytes())
    whole[chunk.dictionary_page_offset : chunk.data_page_offset] = bytes(
        chunk.data_page_offset - chunk.dictionary_page_offset
    )
    file.write_bytes(whole)
    with pytest.raises(MerlinSimError, match=r"log.parquet, row group 0 .*: cannot be read"):
        run(file)


@pytest.mark.slow
def test_prices_are_no_keys_from_either_kind_of_file(tmp_path, run):
    log = make_log().assign(**{"price band": lambda frame: frame["what"] / 8})
    log.to_csv(tmp_path / "log.csv", index=False)
    log.to_parquet(tmp_path / "log.parquet")
    for kind in ("csv", "parquet"):
        with pytest.raises(MerlinSimError, match="'price band': expected text or whole num") as e:
            run(tmp_path / f"log.{kind}", *OPTIONS)
        assert "`--features` names columns of numbers" in str(e.value)
    # Versions, and numbers among other text, are text.
    text = log.assign(**{"price band": [f"{n % 3}.0.{n % 2}" for n in range(len(log))]})
    text.to_csv(tmp_path / "text.csv", index=False)
    run(tmp_path / "text.csv", *OPTIONS, "--layout", "users")


@pytest.mark.slow
def test_decimal_categories_are_the_same_keys_from_csv_and_parquet(tmp_path, run):
    log = make_log().assign(**{"price band": lambda frame: frame["what"] % 4 / 2})
    (tmp_path / "f.yaml").write_text("features: {price band: {type: category, of: item}}")
    text = log["price band"].map("{:.2f}".format)
    log.assign(**{"price band": text}).to_csv(tmp_path / "log.csv")
    log.to_parquet(tmp_path / "log.parquet")
    for kind in ("csv", "parquet"):
        features = ("--item_feature_columns", "brand", "--features", tmp_path / "f.yaml")
        run(tmp_path / f"log.{kind}", *OPTIONS, *features, "--layout", "users")
        keys = pd.read_parquet(tmp_path / "dataset/categories/price band.parquet")["key"]
        assert keys.tolist() == ["0", "0.5", "1", "1.5"]
