"""Times as text: ISO 8601 with and without an offset, in CSV, parquet and requests alike."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feature_logs import write_features

from merlin_sim.workflows.logs.times import (
    kind_of_timestamp,
    moments_of,
    seconds_of,
    time_from_text,
)

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
        assert moments_of(values[:1], None)[0].to_pylist() == pytest.approx([seconds], abs=1e-6)
        assert time_from_text(text, "date")[0] == pytest.approx(seconds * 10**6, abs=1)
        assert kind_of_timestamp(values) == "date"
    else:
        assert time_from_text(text, "date")[0] is None


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_offsets_and_nanoseconds_make_the_same_dataset(kind, run_cli, tmp_path):
    moments = pd.date_range("2024-01-01 20:00", periods=8, freq="97min", tz="UTC")
    moments += pd.Timedelta("123456us")
    texts = {
        "plain": moments.tz_localize(None).astype(str),
        "zulu": [f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z" for moment in moments],
        "offset": moments.tz_convert("Asia/Kolkata").astype(str),
        "nano": [f"{moment:%Y-%m-%d %H:%M:%S.%f}789" for moment in moments],
    }
    text = "time_intervals: seconds\nfeatures: {when: {type: time, of: interaction}}"
    features = write_features(tmp_path / "features.yaml", text)
    found = {}
    for name, times in texts.items():
        log = pd.DataFrame({"who": "u", "what": list("abcdefga"), "when": list(times)})
        path = tmp_path / f"{name}.{kind}"
        (log.to_csv if kind == "csv" else log.to_parquet)(path, index=False)
        result = run_cli(
            *("preprocess", "log", path, "--output_path", tmp_path / name, "--features", features),
            *("--user_column", "who", "--item_column", "what", "--timestamp_column", "when"),
            *("--shortest_sequence_for_user", 2, "--test_from", "2024-01-02T05:30:00+05:30"),
            *("--scheduler", "single", "--fit_on", "all"),
        )
        assert result.exception is None, result.output
        found[name] = [pq.read_table(tmp_path / name / part) for part in ("train", "test")]
    assert all(rows == found["plain"] for rows in found.values())
    assert found["plain"][1].num_rows == 10
