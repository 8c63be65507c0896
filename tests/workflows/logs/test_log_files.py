"""Directories as logs, and what is said of files that are no log as it stands."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError


def some_log(rows=300) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "who": random.integers(0, 20, rows),
            "what": random.integers(0, 30, rows),
            "when": np.arange(rows) // 7,
        }
    )


@pytest.fixture
def run(preprocess_log, tmp_path):
    """Preprocess paths below the test's directory; gives the bytes of the dataset's files."""

    def run(*paths, output="dataset"):
        given = [path if str(path).startswith("--") else tmp_path / path for path in paths]
        validation = "newest" if "--validation_path" in paths else "none"
        made, _ = preprocess_log(
            tmp_path / output, *given, "--shortest_sequence_for_user", 2, "--layout", "users",
            "--validation", validation, "--order_of_equal_times", "log",
        )  # fmt: skip
        parts = sorted(made.glob("*/part.*.parquet"))
        return {str(part.relative_to(made)): part.read_bytes() for part in parts}

    return run


def write(log: pd.DataFrame, path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    (log.to_csv if ".csv" in path.name else log.to_parquet)(path, index=False)


@pytest.mark.slow
def test_a_directory_is_its_files_by_name(run, tmp_path):
    log = some_log().assign(when=1)  # so that nothing but the order of the files orders rows
    names = [f"day=2024-01-0{number}/a.csv.gz" for number in (0, 1, 2)]
    for name, begin in zip(reversed(names), (200, 100, 0), strict=True):
        write(log[begin : begin + 100], tmp_path / "log" / name)
    for name in ("_SUCCESS", ".part-0.crc"):
        (tmp_path / "log" / name).write_text("")
    made = run("log")
    assert made == run(*(f"log/{name}" for name in names), output="by file")
    assert made != run(*(f"log/{name}" for name in reversed(names)), output="reversed")


@pytest.mark.slow
def test_a_directory_may_test_and_validate(run, tmp_path):
    log = some_log()
    for name, (begin, end) in {"log": (0, 196), "may": (196, 245), "june": (245, 300)}.items():
        middle = (begin + end) // 2
        write(log[begin:middle], tmp_path / name / "a.parquet")
        write(log[middle:end], tmp_path / name / "b.parquet")
    by_directory = run("log", "--validation_path", "may", "--test_path", "june")
    by_file = ["log/a.parquet", "log/b.parquet"]
    for option, name in (("--validation_path", "may"), ("--test_path", "june")):
        by_file += [option, f"{name}/a.parquet", option, f"{name}/b.parquet"]
    assert by_directory == run(*by_file, output="by file")
    with pytest.raises(MerlinSimError, match="Received more than once: .*log/a.parquet"):
        run("log", "log/a.parquet", output="twice")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "log: expected a directory of CSV .* or parquet .* files, found none"),
        (("_SUCCESS", "sub/.hidden"), "log: expected a directory of CSV .*, found none"),
        (("a.csv", "b.parquet"), r"log: .* one kind, found a.csv and b.parquet"),
        (("a.csv", "notes.txt"), r"log: .*found also notes.txt"),
        (("day=1/a.csv", "day=2/deep/b.csv"), r"log: .*found also day=2/deep/b.csv"),
    ],
)
def test_directories_that_are_no_log_are_refused(names, message, run, tmp_path):
    (tmp_path / "log").mkdir()
    for name in names:
        (tmp_path / "log" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "log" / name).touch()
    with pytest.raises(MerlinSimError, match=message):
        run("log")


def test_the_output_may_not_lie_over_the_log(run, tmp_path):
    write(some_log(), tmp_path / "data" / "a.parquet")
    with pytest.raises(MerlinSimError, match="expected a directory that holds nothing of what is"):
        run("data", output="data")


LATIN = "who,what,when,brand\n1,2,3,plain\n1,3,4,caf\u00e9\n".encode("latin-1")
OF_LATIN = "'brand': expected a value, found b'caf.xe9', which is not UTF-8.*`iconv -f latin1 -t u"
TABLE = "who,what,when\n1,2,3\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.csv", LATIN, f"log.csv, line 3: {OF_LATIN}"),
        ("log.csv.gz", gzip.compress(LATIN, mtime=0), f"log.csv.gz, line 3: {OF_LATIN}"),
        (
            "log.csv",
            "who,what,when,caf\u00e9\n1,2,3,x\n".encode("latin-1"),
            "log.csv: expected a header in UTF-8.*`iconv -f latin1 -t utf8`",
        ),
        ("log.csv", TABLE.encode("utf-16"), "log.csv: expected a header in UTF-8.*`iconv -f utf16"),
        *(
            (
                "log.csv",
                TABLE.replace(",", separator).encode(),
                f"log.csv: expected commas between .* found {said}",
            )
            for separator, said in ((";", "';'"), ("\t", r"'\\t'"), ("|", r"'\|'"))
        ),
    ],
)
def test_another_encoding_or_separator_is_named(name, content, message, run, tmp_path):
    (tmp_path / name).write_bytes(content)
    options = ["--item_feature_columns=brand"] if "'brand'" in message else []
    with pytest.raises(MerlinSimError, match=f"(?s){message}"):
        run(name, *options)


@pytest.mark.slow
def test_parquet_files_without_rows_are_left_out_or_named(run, tmp_path):
    log = some_log()
    write(log[:0].astype(object), tmp_path / "log" / "0.parquet")
    write(log[:0], tmp_path / "log" / "2.parquet")
    schema = pq.read_schema(tmp_path / "log" / "2.parquet")
    pq.ParquetWriter(tmp_path / "log" / "3.parquet", schema).close()  # without row groups
    for names in (["log"], [f"log/{number}.parquet" for number in (0, 2, 3)]):
        with pytest.raises(
            MerlinSimError, match="0.parquet, .*2.parquet, .*3.parquet: expected interactions, fou"
        ):
            run(*names)
    write(log, tmp_path / "log" / "1.parquet")
    assert run("log") == run("log/1.parquet", output="alone")
    write(log[:0], tmp_path / "header.csv")
    with pytest.raises(MerlinSimError, match="header.csv: expected interactions, found none"):
        run("header.csv", output="other")


@pytest.mark.slow
def test_times_of_text_are_found_behind_a_file_without_rows(run, tmp_path):
    log = some_log()
    log["when"] = (pd.Timestamp("2024-01-01") + pd.to_timedelta(log["when"], "h")).astype(str)
    write(log, tmp_path / "log" / "1.parquet")
    schema = pa.schema([("who", pa.int64()), ("what", pa.int64()), ("when", pa.null())])
    pq.write_table(schema.empty_table(), tmp_path / "log" / "0.parquet")
    assert run("log", "--test_from=2024-01-02") == run(
        "log/1.parquet", "--test_from=2024-01-02", output="alone"
    )
