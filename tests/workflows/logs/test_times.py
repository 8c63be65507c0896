"""The times of a log: their unit, what lies beyond reason, and what a summary says of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow
from merlin_sim.workflows.times import (
    DATE,
    kind_of_timestamp,
    parsed_seconds,
    seconds_of,
    time_from_text,
)

pytestmark = pytest.mark.slow

START = 1_704_067_200  # 2024-01-01 in UTC
DAYS = 30
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
INTERVALS = "time_intervals: hours\n"
HOURS = "features: {when: {type: time, of: interaction, cycles: [hour]%s}}\n"


def some_log(seed=0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    rows = 200
    return pd.DataFrame(
        {
            "who": random.integers(0, 12, rows),
            "what": random.integers(0, 15, rows),
            "when": START + np.sort(random.integers(0, DAYS * 86_400, rows)),
        }
    )


@pytest.fixture
def run(preprocess_log, tmp_path):
    """Preprocess a frame to users as a file of a kind; gives what the command printed."""

    def run(log, *options, features=None, kind="parquet", output="dataset"):
        path = tmp_path / f"log.{kind}"
        (log.to_csv if kind == "csv" else log.to_parquet)(path, index=False)
        if features is not None:
            (tmp_path / "features.yaml").write_text(features)
            options = (*options, "--features", tmp_path / "features.yaml")
        short = () if "--fitted" in options else ("--shortest_sequence_for_user", 2)
        return preprocess_log(tmp_path / output, path, "--layout", "users", *short, *options)[1]

    return run


def times_line(output: str) -> str:
    (line,) = [line for line in output.splitlines() if line.startswith("times: ")]
    return line


def test_the_summary_reports_the_first_and_the_last_time(run):
    log = some_log()
    first, last = log["when"].min(), log["when"].max()
    when = pd.to_datetime(log["when"], unit="s", utc=True).dt.tz_convert("Asia/Kolkata").astype(str)
    dates = (f"{pd.Timestamp(at, unit='s'):%Y-%m-%dT%H:%M:%SZ}" for at in (first, last))
    assert times_line(run(log.assign(when=when), kind="csv")) == f"times: {' to '.join(dates)}"
    line = times_line(run(log.assign(when=log["when"] * 1000), "--timestamp_unit", "ms"))
    first, last = first * 1000, last * 1000
    assert line.startswith(f"times: {first} (2024-01-01T") and f" to {last} (2024-01-3" in line
    assert line.endswith(", milliseconds since 1970")


def test_small_numbers_are_an_order(run):
    assert times_line(run(some_log().assign(when=20240101 + np.arange(200) % 30))) == (
        "times: 20240101 to 20240130, an order (`--timestamp_unit` says what numbers count)"
    )


@pytest.mark.parametrize(
    ("unit", "word", "kind", "features"),
    [
        ("ms", "milli", "csv", None),
        ("us", "micro", "parquet", INTERVALS),
        ("ns", "nano", "csv", None),
    ],
)
def test_smaller_units_are_not_read_as_seconds(unit, word, kind, features, run, tmp_path):
    log = some_log().assign(when=lambda log: log["when"] * UNITS[unit])
    with pytest.raises(MerlinSimError) as caught:
        run(log, kind=kind, features=features)
    message = str(caught.value)
    assert f"log.{kind}: column 'when': expected times from 1990 to 2100" in message
    assert f"fit {word}seconds since 1970 (2024-01-01T" in message
    assert f"`--timestamp_unit {unit}`" in message
    assert not (tmp_path / "dataset").exists()
    if unit == "us":
        run(log, "--timestamp_unit", unit, kind=kind, features=features)
    with pytest.raises(MerlinSimError, match="fit seconds since 1970 .*`--timestamp_unit s`"):
        run(some_log(), "--timestamp_unit", unit)


@pytest.mark.parametrize("given", [(), ("--timestamp_unit", "ms")])
def test_a_column_of_two_units_is_refused(given, run):
    log = some_log()
    log.loc[150:, "when"] *= 1000
    with pytest.raises(MerlinSimError) as caught:
        run(log, *given)
    message = " ".join(str(caught.value).split())
    assert "mixes units" in message
    assert f"{log['when'].iloc[0]} fits seconds since 1970 (2024-01-01T" in message
    assert f"{log['when'].iloc[-1]} fits milliseconds since 1970 (2024-01-" in message
    assert "`--timestamp_unit order`" in message
    if given:
        assert "an order" in times_line(run(log, "--timestamp_unit", "order"))


@pytest.mark.parametrize(
    ("when", "found"),
    [
        (some_log()["when"].where(lambda at: at.index != 7, 0), "0 \\(1970-01-01T"),
        (pd.to_datetime(some_log()["when"] + 80 * 366 * 86_400, unit="s"), "2104-"),
        (pd.Series(np.linspace(631_152_000, 4_100_000_000, 200).astype(int)), "631152000 \\(1990-"),
    ],
)  # fmt: skip
def test_times_beyond_reason_are_refused(when, found, run):
    log = some_log().assign(when=when.to_numpy())
    with pytest.raises(MerlinSimError, match=f"at most 60 years apart.* found {found}"):
        run(log)
    if "1970" in found:
        assert "times: " in run(log, "--timestamp_unit", "order")


def test_dates_beyond_what_nanoseconds_hold_are_refused(run):
    far = pa.array(some_log()["when"].to_numpy() + 1_000 * 31_557_600, pa.timestamp("s"))
    log = some_log().assign(when=far.to_pandas(timestamp_as_object=True))
    with pytest.raises(MerlinSimError, match="expected times from 1990 to 2100.* found 3024-"):
        run(log)


@pytest.mark.parametrize(
    ("kind", "features"),
    [
        ("parquet", INTERVALS),
        ("csv", HOURS % ""),
        ("csv", "encodings: {what: [recency]}"),
        ("csv", "encodings: {what: [recent_popularity]}"),
    ],
)
def test_a_feature_of_times_needs_more_than_an_order(kind, features, run):
    log = some_log().assign(when=np.arange(200))
    with pytest.raises(MerlinSimError) as caught:
        run(log, kind=kind, features=features)
    assert "`--timestamp_unit` s, ms, us or ns says what they count" in str(caught.value)
    with pytest.raises(MerlinSimError, match="are an order.* expected a unit: s, ms, us or ns"):
        run(log, "--timestamp_unit", "order", kind=kind, features=features)
    # Said to be seconds, they may count from anywhere.
    if features == INTERVALS:
        assert ", seconds since 1970" in run(log, "--timestamp_unit", "s", features=features)


def test_the_unit_stands_in_the_features_file_too(run, tmp_path):
    log = some_log()
    log["when"] *= 1000
    found = {}
    for name, options, text in (
        ("option", ("--timestamp_unit", "ms"), INTERVALS),
        ("file", (), INTERVALS + "timestamp_unit: ms"),
    ):
        run(log, *options, features=text, output=name)
        found[name] = (tmp_path / name / "workflow.json").read_text()
    assert found["option"] == found["file"]
    for text in (INTERVALS + "timestamp_unit: us", HOURS % ", unit: us"):
        with pytest.raises(MerlinSimError, match="expected us, as .*features.yaml says, got ms"):
            run(log, "--timestamp_unit", "ms", features=text)
    with pytest.raises(MerlinSimError, match="'when': expected one unit, found ms .* and us"):
        run(log, features=HOURS % ", unit: us" + "timestamp_unit: ms")


def test_the_unit_of_the_timestamp_as_a_feature_is_the_timestamps(run, tmp_path):
    log = some_log()
    features = HOURS % ", unit: ms"
    run(log.assign(when=log["when"] * 1000), "--layout", "samples", features=features)
    found = pd.read_parquet(tmp_path / "dataset" / "test")["when_hour_sin"]
    angles = log.groupby("who")["when"].max() // 3600 % 24 * 2 * np.pi / 24
    assert {*found.astype(float).round(4)} == {*np.sin(angles).round(4)}


def test_the_next_day_has_the_unit_of_the_day_before(run, tmp_path):
    old = some_log().assign(when=lambda log: log["when"] * 1000)
    new = old.assign(when=old["when"] + DAYS * 86_400_000)
    run(old, "--timestamp_unit", "ms", features=INTERVALS, output="old")
    goes_on = ("--fitted", tmp_path / "old", "--history", tmp_path / "old")
    assert "2024-01-31T" in times_line(run(new, *goes_on, output="next"))
    seconds = pd.read_parquet(tmp_path / "next" / "users")["when"]
    assert max(map(max, seconds)) == new["when"].max() / 1000
    with pytest.raises(
        MerlinSimError, match="`--timestamp_unit`: expected ms, as .*old says, got s"
    ):
        run(new, *goes_on, "--timestamp_unit", "s", output="other")


def test_earlier_histories_of_another_unit_are_refused(run, tmp_path):
    log = some_log()
    run(log.assign(when=np.arange(200)), output="order")
    goes_on = ("--fitted", tmp_path / "order", "--history", tmp_path / "order")
    with pytest.raises(MerlinSimError, match="order/history/.* found 0 .* to 17.*log.parquet"):
        run(log, *goes_on, output="next")


def test_a_date_splits_numbers_of_a_known_unit(run, tmp_path):
    unit = "ms"
    log = some_log().assign(when=lambda log: log["when"] * UNITS[unit])
    at = START + 20 * 86_400
    rows = {}
    for name, time in (("number", at * UNITS[unit]), ("offset", "2024-01-21T05:30:00+05:30")):
        run(log, "--timestamp_unit", unit, "--test_from", time, output=name)
        rows[name] = pd.read_parquet(tmp_path / name / "users")
    assert (rows["number"]["train_end"] < rows["number"]["test_end"]).any()
    pd.testing.assert_frame_equal(rows["number"], rows["offset"])
    with pytest.raises(MerlinSimError, match="`--test_from`: expected a whole number.*2024-01-21"):
        run(log, "--timestamp_unit", "order", "--test_from", "2024-01-21")


@pytest.mark.parametrize("form", ["text", "numbers"])
def test_frames_are_split_as_files_are(form, run, tmp_path):
    log = some_log()
    moments = pd.to_datetime(log["when"], unit="s", utc=True).dt.tz_convert("Asia/Kolkata")
    log["when"] = {"text": moments.astype(str), "numbers": log["when"]}[form]
    time = START + 20 * 86_400 if form == "numbers" else "2024-01-21"
    run(log, "--test_from", time, "--layout", "samples")
    fitted = FittedWorkflow.load(tmp_path / "dataset")
    for frame in (fitted.rows(log), log):
        made = fitted.samples(frame, "test")
        kept = pd.read_parquet(tmp_path / "dataset" / "test")
        names = ["who", "what_trgt", "label"]
        key = [tuple(row) for row in kept[names].sort_values(names).to_numpy()]
        assert sorted(map(tuple, made[names].to_numpy())) == key
    if form == "numbers":
        with pytest.raises(MerlinSimError, match="the log: column 'when': .* fit milliseconds"):
            fitted.rows(log.assign(when=log["when"] * 1000))


def test_a_workflow_of_ones_own_sorts_by_time_and_not_by_text(run, tmp_path):
    log = some_log()
    moments = pd.to_datetime(log["when"], unit="s", utc=True)
    zones = ["UTC", "Asia/Kolkata", "America/Los_Angeles"]
    texts = [str(at.tz_convert(zones[row % 3])) for row, at in enumerate(moments)]
    log["when"] = moments
    run(log)
    fitted = FittedWorkflow.load(tmp_path / "dataset")
    shuffled = log.sample(frac=1, random_state=1)
    written = shuffled.assign(when=np.array(texts)[shuffled.index])
    of_times, of_texts = (
        fitted.histories().transform(frame)["what"].to_numpy() for frame in (shuffled, written)
    )
    assert [list(h) for h in of_texts] == [list(h) for h in of_times]
    as_numbers = shuffled.assign(when=(log["when"].astype("int64") // 10**9 % 1000).astype(str))
    in_order = as_numbers.assign(when=as_numbers["when"].astype(int))
    of_numbers, of_digits = (
        fitted.histories().transform(frame)["what"].to_numpy() for frame in (in_order, as_numbers)
    )
    assert [list(h) for h in of_digits] == [list(h) for h in of_numbers]
    with pytest.raises(MerlinSimError, match="'when': expected a date and time .*found 'soon'"):
        fitted.histories().transform(written.assign(when=[*texts[:-1], "soon"]))


NOON = 1_704_110_400  # 2024-01-01 12:00:00 in UTC


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2024-01-01 12:00:00", NOON),
        ("2024-01-01T12:00:00Z", NOON),
        ("2024-01-01 12:00:00 +00:00", NOON),
        ("2024-01-01T17:30:00+05:30", NOON),
        ("2024-01-01T17:30+0530", NOON),
        ("2024-01-01 04:00:00-08", NOON),
        ("2023-12-31T23:30:00-12:30", NOON),
        ("2024-01-01T12:00:00.5Z", NOON + 0.5),
        ("2024-01-01 12:00:00.123456789", NOON + 0.123456),
        ("2024-01-01T13:00:00.123456999+01:00", NOON + 0.123456),
        ("2024-01-01", NOON - 43_200),
        *((text, None) for text in ("2024-02-30T12:00:00Z", "2024-01-01 12:00:00+25:00")),
        *(
            (text, None)
            for text in (
                "2024-01-01 12:00 CET",
                "2024-01-01Z",
                "noon",
                "12:00Z",
                "2024-01-01 12:00:001Z",
            )
        ),
    ],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_text_becomes_seconds_in_utc(text, seconds, kind):
    values = pa.array([text, "2024-01-01 12:00:00"]).cast(kind)
    found, bad = seconds_of(values, None)
    assert bad.tolist() == [seconds is None, False]
    if seconds is not None:
        assert found.to_pylist() == pytest.approx([seconds, NOON], abs=1e-6)
        assert parsed_seconds(values[:1], None)[0].to_pylist() == pytest.approx([seconds], abs=1e-6)
        assert time_from_text(text, DATE)[0] == pytest.approx(seconds * 10**6, abs=1)
        assert kind_of_timestamp(values) == DATE
    else:
        assert time_from_text(text, DATE)[0] is None
