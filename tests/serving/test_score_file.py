"""Files of events become files of scores."""

from __future__ import annotations

import csv
import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from full_disk import written_at_most

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.serving import score_file as module
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import History, Interaction, StoreError, as_text
from merlin_sim.serving.limits import Limits
from merlin_sim.serving.score_file import EventFile, score_file


def write_jsonl(path, events):
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def write_csv(path, events):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["candidates", "user_id", "history", "more"])
        for index, event in enumerate(events):
            join = "|".join if index % 2 else json.dumps
            lists = [join(event["candidates"]), event["user_id"], join(event["history"])]
            writer.writerow([*lists, "x"])


def write_parquet(path, events):
    pq.write_table(pa.Table.from_pylist(events), path)


def write_structs(path, events):
    item = pa.struct([("item_id", pa.string()), ("cat_id", pa.string())])
    fields = [("user_id", pa.string()), ("history", pa.list_(item)), ("candidates", pa.list_(item))]
    rows = [
        {k: v if k == "user_id" else [{"item_id": key} for key in v] for k, v in event.items()}
        for event in events
    ]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), path)


WRITERS = {
    "jsonl": (write_jsonl, "events.jsonl"),
    "csv": (write_csv, "events.csv"),
    "parquet": (write_parquet, "events.parquet"),
    "structs": (write_structs, "events.parquet"),
}


def read_scores(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("form", "ending"),
    [("jsonl", ".parquet"), ("csv", ".jsonl"), ("parquet", ".jsonl"), ("structs", ".parquet")],
)
def test_every_form_gives_the_scores_of_evaluate(
    form, ending, scorer, encoder, events, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "EVENTS_PER_PIECE", 7)
    write, name = WRITERS[form]
    write(tmp_path / name, events)
    output = tmp_path / f"scores{ending}"
    summary = score_file(scorer, encoder, tmp_path / name, output)
    assert (summary.events, summary.candidates) == (len(events), len(events))
    rows = read_scores(output)
    assert [row["user_id"] for row in rows] == [event["user_id"] for event in events]
    assert [row["candidates"] for row in rows] == [event["candidates"] for event in events]
    first = 2 if form == "csv" else 1
    assert [row["line"] for row in rows] == list(range(first, len(events) + first))
    np.testing.assert_allclose([row["scores"][0] for row in rows], expected, atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, output.name])


BAD_LINES = [
    b"not json",
    b'{"user_id": "u"}',
    b"[]",
    b'{"user_id": "\xff", "history": [], "candidates": []}',
    b'{"user_id": 5, "history": [], "candidates": []}',
    b'{"user_id": "u", "history": [], "candidates": [{"x": 1}]}',
    b'{"user_id": "u", "history": [], "candidates": ["1","2","3","4"]}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_history_that_is_not_sent_is_taken_from_a_store(
    form, scorer, servable, events, expected, tmp_path
):
    store = open_store(str(tmp_path / "store"), create=True)
    for user, history in {event["user_id"]: event["history"] for event in events}.items():
        store.append([Interaction(as_text(user), as_text(item)) for item in history])
    kept = EventEncoder(servable, histories=store)
    without = [{**event} for event in events]
    for event in without[1:]:  # the first one brings its own
        del event["history"]
    path = tmp_path / f"events.{form}"
    if form == "jsonl":
        write_jsonl(path, without)
    elif form == "csv":
        rows = [[event["user_id"], json.dumps(event["candidates"])] for event in without]
        path.write_text("user_id,candidates\n")
        with open(path, "a", newline="") as file:
            csv.writer(file).writerows(rows)
    else:
        write_parquet(path, [{k: event[k] for k in ("user_id", "candidates")} for event in without])
    score_file(scorer, kept, path, tmp_path / "scores.jsonl")
    scores = [row["scores"][0] for row in read_scores(tmp_path / "scores.jsonl")]
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:20].decode("latin1"))
def test_a_bad_row_is_reported_by_line_or_left_out(line, scorer, servable, events, tmp_path):
    encoder = EventEncoder(servable, Limits(max_candidates=3))
    good = [json.dumps(event).encode() for event in events[:3]]
    source, output = tmp_path / "events.jsonl", tmp_path / "scores.jsonl"
    source.write_bytes(b"\n".join([good[0], b"", line, good[1], line, good[2]]))
    with pytest.raises(MerlinSimError, match=r"events.jsonl, line 3: .*--on_bad_rows skip"):
        score_file(scorer, encoder, source, output)
    assert not output.exists()
    summary = score_file(scorer, encoder, source, output, on_bad_rows="skip")
    assert (summary.events, summary.bad_rows.count) == (3, 2)
    assert [row["line"] for row in read_scores(output)] == [1, 4, 6]
    assert "line 3" in summary.bad_rows.describe() and "line 5" in summary.bad_rows.describe()


def test_what_excel_writes_can_be_read_and_what_was_never_seen_is_counted(
    scorer, encoder, events, expected, tmp_path
):
    event = events[0]
    item = event["candidates"][0]
    history = "|".join(event["history"])
    rows = [f"{event['user_id']},{history},{item}", f"nobody,{history},new|{item}", "nobody,,"]
    text = "\r\n".join(["\ufeffuser_id,history,candidates", *rows, ""])
    (tmp_path / "events.csv").write_bytes(text.encode())
    summary = score_file(scorer, encoder, tmp_path / "events.csv", tmp_path / "scores.jsonl")
    assert read_scores(tmp_path / "scores.jsonl")[0]["scores"] == pytest.approx([expected[0]], 1e-4)
    assert (summary.unseen_users, summary.unseen_candidates) == (2, 1)


@pytest.mark.slow
def test_a_damaged_parquet_file_is_reported_with_its_name(encoder, events, tmp_path):
    path, refused = tmp_path / "events.parquet", 0
    write_parquet(path, events[:2])
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for at in range(start, len(content)):
        for bits in (0x01, 0x80):
            changed = bytearray(content)
            changed[at] ^= bits
            path.write_bytes(changed)
            try:
                file = EventFile(path, encoder)
                file.size(), list(file.rows())
            except MerlinSimError as error:
                assert str(path) in str(error)
                refused += 1
    assert refused > 300


def test_files_are_checked_first_and_events_are_not_replaced_by_their_scores(
    scorer, encoder, events, tmp_path
):
    source, none, output = (tmp_path / name for name in ("e.jsonl", "none.jsonl", "s.jsonl"))
    write_jsonl(source, events[:1])
    (tmp_path / "e.txt").write_text("")
    (tmp_path / "bad.parquet").write_text("no parquet")
    rows = [{"user_id": event["user_id"], "items": event["candidates"]} for event in events]
    write_parquet(tmp_path / "e.parquet", rows)
    (tmp_path / "link.jsonl").symlink_to(source)
    (tmp_path / "unread.jsonl").symlink_to("/proc/self/mem")
    lacking = "the columns user_id, history, candidates.*without history, candidates"
    for given, written, said in (
        (none, output, "does not exist"),
        (source, tmp_path / "s.csv", "should end in .jsonl, .parquet"),
        (tmp_path / "e.txt", output, "should end in .jsonl, .csv, .parquet"),
        (tmp_path / "bad.parquet", output, "bad.parquet: expected a parquet file"),
        (tmp_path / "e.parquet", output, lacking),
        (tmp_path / "unread.jsonl", output, "unread.jsonl: cannot be read: Input/output error"),
        (source, source, "another file than `--input`"),
        (source, tmp_path / "link.jsonl", "another file than `--input`"),
        (source, tmp_path / "none" / "s.jsonl", "there is no directory"),
    ):
        with pytest.raises(MerlinSimError, match=said):
            score_file(scorer, encoder, given, written, overwrite=True, on_bad_rows="skip")
    assert read_scores(source) == events[:1]
    output.write_text("mine")
    with pytest.raises(MerlinSimError, match="exists.*--overwrite"):
        score_file(scorer, encoder, source, output)
    assert output.read_text() == "mine"
    source.write_text("")
    score_file(scorer, encoder, source, output, overwrite=True)
    assert output.read_text() == ""


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_full_disk_is_said_and_keeps_nothing(scorer, encoder, events, ending, tmp_path):
    source, output = tmp_path / "events.jsonl", tmp_path / f"out/scores.{ending}"
    output.parent.mkdir()
    write_jsonl(source, events * 5)
    with written_at_most(2000), pytest.raises(MerlinSimError) as error:
        score_file(scorer, encoder, source, output)
    assert str(error.value).startswith(f"{output}: cannot be written: File too large. ")
    assert f"MiB are free in {output.parent}. Make room" in str(error.value)
    assert not list(output.parent.iterdir())


LATIN = "expected UTF-8, found byte 0xe9 (a file in Latin-1 becomes UTF-8 by `iconv"
HEAD = "user_id,history,candidates"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.csv", "user_id,history\nu,a\n", "{} without candidates"),
        ("e.csv", "", "{} without user_id, history, candidates"),
        ("e.csv", f"{HEAD}\nu,a\n", ", line 2: expected 3 fields, found 2"),
        ("e.csv", f'{HEAD}\nu,"[1",a\n', ", line 2: history: expected a JSON list"),
        ("e.csv", f'{HEAD}\nu,a,b\nu,"a"b,c\n', ", line 3: expected CSV"),
        ("e.csv", f"{HEAD}\nu,,a\nJos\xe9,,b\n", f", line 3: user_id: {LATIN}"),
        ("e.csv", f"{HEAD},caf\xe9\nu,,a,b\n", f", line 1: caf\xe9: {LATIN}"),
        ("e.csv", f"{HEAD}\nu,,a\n".encode("utf-16"), "{}expected UTF-8, received UTF-16. "),
        ("e.jsonl", '\n{"user_id": "Jos\xe9"}', f", line 2: {LATIN}"),
        ("e.jsonl", f"{HEAD}\nu,,a\n".encode("utf-16"), "{}expected UTF-8, received UTF-16. "),
        (
            "e.jsonl",
            '\n{"user_id": "x"\n',
            ", line 2: expected one JSON object: {} at character 17",
        ),
    ],
    ids=itertools.count(),
)
def test_a_file_in_another_form_is_named_with_its_row(
    scorer, encoder, name, content, message, tmp_path
):
    data = content if isinstance(content, bytes) else content.encode("latin-1")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(MerlinSimError) as error:
        score_file(scorer, encoder, tmp_path / name, tmp_path / "scores.jsonl")
    begin, _, end = f"{tmp_path / name}{message}".partition("{}")
    assert str(error.value).startswith(begin) and end in str(error.value)


@pytest.mark.parametrize("output", ["scores.jsonl", "scores.parquet"])
def test_keys_that_no_file_can_hold_are_bad_rows_alone(scorer, encoder, events, output, tmp_path):
    lone, source = "\ud800", tmp_path / "events.jsonl"
    item = events[0]["candidates"][0]
    bad = [
        {**events[0], "user_id": lone},
        {**events[0], "candidates": [lone]},
        {**events[0], "history": [lone]},
        {**events[0], "candidates": [{"item_id": item, "cat_id": lone}]},
    ]
    write_jsonl(source, [events[0], *bad, events[1]])
    summary = score_file(scorer, encoder, source, tmp_path / output, on_bad_rows="skip")
    assert (summary.events, summary.bad_rows.count) == (2, 4)
    named = zip(summary.bad_rows.examples, ("user_id", "candidates", "history"), strict=True)
    for row, where in named:
        assert row.reason.startswith(where) and "received a lone surrogate" in row.reason


def test_a_user_whose_history_cannot_be_read_is_a_bad_row(
    servable, scorer, events, tmp_path, monkeypatch
):
    asked = [{n: event[n] for n in ("user_id", "candidates")} for event in events[:20]]
    write_jsonl(tmp_path / "e.jsonl", asked)
    store, reads = open_store(str(tmp_path / "store"), create=True), []
    gone, missing = as_text(events[3]["user_id"]), StoreError("the disk is gone")

    def read_all(users, newest):
        reads.append(len(users))
        return [missing if user == gone else History([], []) for user in users]

    monkeypatch.setattr(store, "read_all", read_all)
    encoder = EventEncoder(servable, histories=store)
    same = sum(event["user_id"] == events[3]["user_id"] for event in asked)
    paths = tmp_path / "e.jsonl", tmp_path / "s.jsonl"
    summary = score_file(scorer, encoder, *paths, on_bad_rows="skip")
    assert (summary.events, summary.bad_rows.count) == (20 - same, same)
    assert reads == [20]  # together
    with pytest.raises(MerlinSimError, match="line 4: the history that is kept of this user"):
        score_file(scorer, encoder, *paths, overwrite=True)
