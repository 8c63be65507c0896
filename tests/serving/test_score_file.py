"""Files of events become files of scores."""

from __future__ import annotations

import csv
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
        for place, event in enumerate(events):
            join = "|".join if place % 2 else json.dumps
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


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
@pytest.mark.parametrize("form", WRITERS)
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user_id,history\nu,a\n", "without candidates"),
        ("", "without user_id, history, candidates"),
        ("user_id,history,candidates\nu,a\n", "line 2: expected 3 fields, found 2"),
        ('user_id,history,candidates\nu,"[1",a\n', "line 2: history: expected a JSON list"),
        ('user_id,history,candidates\nu,a,b\nu,"a"b,c\n', "line 3: expected CSV"),
    ],
)
def test_bad_csv_is_reported(text, message, scorer, encoder, tmp_path):
    (tmp_path / "events.csv").write_text(text)
    with pytest.raises(MerlinSimError, match=message):
        score_file(scorer, encoder, tmp_path / "events.csv", tmp_path / "scores.jsonl")


def test_what_excel_writes_can_be_read(scorer, encoder, events, expected, tmp_path):
    event = events[0]
    row = f"{event['user_id']},{'|'.join(event['history'])},{event['candidates'][0]}"
    text = f"\ufeffuser_id,history,candidates\r\n{row}\r\n"
    (tmp_path / "events.csv").write_bytes(text.encode())
    score_file(scorer, encoder, tmp_path / "events.csv", tmp_path / "scores.jsonl")
    assert read_scores(tmp_path / "scores.jsonl")[0]["scores"] == pytest.approx([expected[0]], 1e-4)


def test_a_parquet_file_without_a_column_is_reported_at_once(scorer, encoder, events, tmp_path):
    rows = [{"user_id": event["user_id"], "items": event["candidates"]} for event in events]
    write_parquet(tmp_path / "events.parquet", rows)
    message = "the columns user_id, history, candidates.*without history, candidates"
    with pytest.raises(MerlinSimError, match=message):
        score_file(
            scorer,
            encoder,
            tmp_path / "events.parquet",
            tmp_path / "scores.jsonl",
            on_bad_rows="skip",
        )


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


def test_where_json_ends_to_be_json_is_reported_within_its_line(scorer, encoder, tmp_path):
    (tmp_path / "events.jsonl").write_text('\n{"user_id": "x"\n')
    with pytest.raises(
        MerlinSimError, match="line 2: expected one JSON object: .* at character 17"
    ):
        score_file(scorer, encoder, tmp_path / "events.jsonl", tmp_path / "scores.jsonl")


def test_what_was_never_seen_is_counted(scorer, encoder, events, tmp_path):
    strange = {**events[1], "user_id": "nobody", "candidates": ["new", *events[1]["candidates"]]}
    write_jsonl(tmp_path / "events.jsonl", [events[0], strange, {**strange, "candidates": []}])
    summary = score_file(scorer, encoder, tmp_path / "events.jsonl", tmp_path / "scores.jsonl")
    assert (summary.unseen_users, summary.unseen_candidates) == (2, 1)


def test_events_are_not_replaced_by_their_scores(scorer, encoder, events, tmp_path):
    source = tmp_path / "events.jsonl"
    write_jsonl(source, events[:1])
    (tmp_path / "link.jsonl").symlink_to(source)
    for output in (source, tmp_path / "link.jsonl"):
        with pytest.raises(MerlinSimError, match="another file than `--input`"):
            score_file(scorer, encoder, source, output, overwrite=True)
    with pytest.raises(MerlinSimError, match="there is no directory"):
        score_file(scorer, encoder, source, tmp_path / "none" / "scores.jsonl")
    assert read_scores(source) == events[:1]


def test_files_are_checked_first(scorer, encoder, tmp_path):
    source = tmp_path / "events.jsonl"
    with pytest.raises(MerlinSimError, match="does not exist"):
        score_file(scorer, encoder, source, tmp_path / "scores.jsonl")
    source.write_text("")
    with pytest.raises(MerlinSimError, match="should end in .jsonl, .parquet"):
        score_file(scorer, encoder, source, tmp_path / "scores.csv")
    (tmp_path / "events.txt").write_text("")
    with pytest.raises(MerlinSimError, match="should end in .jsonl, .csv, .parquet"):
        score_file(scorer, encoder, tmp_path / "events.txt", tmp_path / "scores.jsonl")
    (tmp_path / "events.parquet").write_text("no parquet")
    with pytest.raises(MerlinSimError, match="events.parquet: expected a parquet file"):
        score_file(scorer, encoder, tmp_path / "events.parquet", tmp_path / "scores.jsonl")
    (tmp_path / "scores.jsonl").write_text("mine")
    with pytest.raises(MerlinSimError, match="exists.*--overwrite"):
        score_file(scorer, encoder, source, tmp_path / "scores.jsonl")
    assert (tmp_path / "scores.jsonl").read_text() == "mine"
    score_file(scorer, encoder, source, tmp_path / "scores.jsonl", overwrite=True)
    assert (tmp_path / "scores.jsonl").read_text() == ""


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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.csv", "user_id,history,candidates\nu,,a\nJos\xe9,,b\n", f"line 3: user_id: {LATIN}"),
        ("e.csv", "user_id,history,candidates,caf\xe9\nu,,a,b\n", f"line 1: caf\xe9: {LATIN}"),
        ("e.jsonl", '\n{"user_id": "Jos\xe9"}', f"line 2: {LATIN}"),
    ],
)
def test_latin_1_is_named_with_its_row(scorer, encoder, name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(MerlinSimError) as error:
        score_file(scorer, encoder, tmp_path / name, tmp_path / "scores.jsonl")
    assert str(error.value).startswith(f"{tmp_path / name}, {message}")


@pytest.mark.parametrize("name", ["events.csv", "events.jsonl"])
def test_utf_16_is_named(scorer, encoder, name, tmp_path):
    (tmp_path / name).write_text("user_id,history,candidates\nu,,a\n", encoding="utf-16")
    with pytest.raises(MerlinSimError, match="expected UTF-8, received UTF-16. .*iconv -f UTF-16"):
        score_file(scorer, encoder, tmp_path / name, tmp_path / "scores.jsonl")


def test_an_input_that_cannot_be_read_is_the_inputs_fault(scorer, encoder, tmp_path):
    (tmp_path / "events.jsonl").symlink_to("/proc/self/mem")
    with pytest.raises(MerlinSimError, match="events.jsonl: cannot be read: Input/output error"):
        score_file(scorer, encoder, tmp_path / "events.jsonl", tmp_path / "scores.jsonl")


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


class HalfGone:
    """A store that cannot read the users it is told."""

    def __init__(self, users):
        self.users, self.reads = users, []

    def read_all(self, users, newest):
        self.reads.append(len(users))
        gone = StoreError("the disk is gone")
        return [gone if user in self.users else History([], []) for user in users]


def test_a_user_whose_history_cannot_be_read_is_a_bad_row(servable, scorer, events, tmp_path):
    write_jsonl(tmp_path / "e.jsonl", [
        {"user_id": event["user_id"], "candidates": event["candidates"]} for event in events[:20]
    ])  # fmt: skip
    store = HalfGone([as_text(events[3]["user_id"])])
    encoder = EventEncoder(servable, histories=store)
    same = sum(event["user_id"] == events[3]["user_id"] for event in events[:20])
    paths = tmp_path / "e.jsonl", tmp_path / "s.jsonl"
    summary = score_file(scorer, encoder, *paths, on_bad_rows="skip")
    assert (summary.events, summary.bad_rows.count) == (20 - same, same)
    assert store.reads == [20]  # together
    with pytest.raises(MerlinSimError, match="line 4: the history that is kept of this user"):
        score_file(scorer, encoder, *paths, overwrite=True)
