from __future__ import annotations

import json
import shutil
from collections import Counter

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from processes import run
from warm import warm

from merlin_sim.foundation.digest import DIGEST, sha256, with_own_digest
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

TRANSFORM = """
import json, sys
import pandas as pd
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow
events = pd.read_json(sys.argv[2], dtype={"user_id": str, "item_id": str})
samples = FittedWorkflow.load(sys.argv[1]).samples(events, "test")
samples = samples.assign(**{name: [list(map(int, ids)) for ids in samples[name]]
                            for name in samples if name.endswith(("_pos", "_neg"))})
samples.to_json(sys.argv[3], orient="records")
"""


@pytest.fixture
def artefacts(dataset, tmp_path):
    """The fitted state and nothing else."""
    directory = tmp_path / "fitted"
    shutil.copytree(dataset / "categories", directory / "categories")
    shutil.copy(dataset / "workflow.json", directory)
    return directory


@pytest.fixture
def events(raw, plain_rules):
    kept = plain_rules(raw).kept
    names = {"reviewerID": "user_id", "asin": "item_id", "unixReviewTime": "timestamp"}
    return kept.rename(columns=names)[list(names.values())].sample(frac=1, random_state=0)


def rows_of(frame: pd.DataFrame) -> Counter:
    rows = []
    for row in frame.to_dict("records"):
        rows.append(
            tuple(
                tuple(map(int, value)) if name.endswith(("_pos", "_neg")) else int(value)
                for name, value in row.items()
            )
        )
    return Counter(rows)


@pytest.mark.slow
def test_a_process_that_never_fitted_gives_the_same(artefacts, events, dataset, tmp_path):
    events.reset_index(drop=True).to_json(tmp_path / "events.json")
    (tmp_path / "transform.py").write_text(TRANSFORM)
    arguments = (artefacts, tmp_path / "events.json", tmp_path / "samples.json")
    done = run(warm(str(tmp_path / "transform.py"), *map(str, arguments)))
    assert done.returncode == 0, done.stderr
    theirs = pd.read_json(tmp_path / "samples.json")
    assert rows_of(theirs) == rows_of(pd.read_parquet(dataset / "test/part.0.parquet"))


@pytest.mark.slow
def test_train_rows_as_well(artefacts, events, dataset):
    samples = FittedWorkflow.load(artefacts).samples(events, "train")
    assert rows_of(samples) == rows_of(pd.read_parquet(dataset / "train/part.0.parquet"))


def test_unseen_keys(artefacts, events):
    fitted = FittedWorkflow.load(artefacts)
    user = events["user_id"].iloc[0]
    known = events[events["user_id"] == user].sort_values(["timestamp", "item_id"])
    new = pd.DataFrame({"user_id": user, "item_id": ["never seen"], "timestamp": [2_000_000_000]})
    stranger = known.assign(user_id="nobody")
    histories = fitted.histories().transform(pd.concat([known, new, stranger]))
    expected = fitted.histories().transform(known)
    assert len(histories) == 2
    ids = {row.user_id: list(row.item_id) for row in histories.itertuples()}
    known_id = expected["user_id"].iloc[0]
    assert known_id > 0
    assert ids == {known_id: list(expected["item_id"].iloc[0]), 0: ids[known_id]}


@pytest.mark.slow
def test_a_later_log_gets_the_same_ids(raw, dataset, tmp_path, preprocess, rows_of):
    output = preprocess(raw, tmp_path / "later", "--fitted", dataset)
    for name in ("train/part.0.parquet", "test/part.0.parquet", "categories/item_id.parquet"):
        assert (output / name).read_bytes() == (dataset / name).read_bytes()


@pytest.mark.slow
def test_rules_that_are_not_given_are_those_of_the_fit(
    raw, tmp_path, preprocess, plain_rules, positives_of, rows_of
):
    first = preprocess(raw, tmp_path / "first", "--max_sequence_length", 5)
    options = ("--fitted", first, "--shortest_sequence_for_training", 3)
    later = preprocess(raw, tmp_path / "later", *options)
    expected = plain_rules(raw, longest=5, shortest_training=3)
    assert positives_of(rows_of(later, "train")) == expected.train


@pytest.mark.slow
def test_new_items_are_left_out_of_a_later_log(tmp_path, raw_writer, preprocess, rows_of, run_cli):
    old = [("u", "abcb"[n % 4], n) for n in range(4)] + [("v", "c", 1), ("v", "a", 2)]
    metadata = [("a", [["A"]]), ("b", [["B"]]), ("c", [["C"]]), ("d", [["D"]])]
    options = ("--shortest_sequence_for_user", 2)
    first = preprocess(raw_writer(tmp_path / "old", old, metadata), tmp_path / "first", *options)
    new = [("u", "a", 5), ("u", "d", 6), ("u", "c", 7), ("w", "a", 1), ("w", "b", 2)]
    later = preprocess(
        raw_writer(tmp_path / "new", new, metadata), tmp_path / "later", "--fitted", first
    )
    rows = pd.read_parquet(later / "test/part.0.parquet")
    positive = rows[rows["label"] == 1].sort_values("user_id")
    assert positive["user_id"].tolist() == [0, 1]
    assert [list(items) for items in positive["item_id_pos"]] == [[1], [1]]
    assert positive["item_id_trgt"].tolist() == [2, 3]


@pytest.fixture
def fitted_log(tmp_path, run_cli):
    rows = {"who": [1, 1, 1], "what": [5, 6, 5], "when": [1, 2, 3], "brand": list("aba")}
    log = pd.DataFrame(rows)
    log.to_csv(tmp_path / "log.csv", index=False)

    def run(output, *options):
        return run_cli(
            "preprocess", "log", tmp_path / "log.csv", "--output_path", tmp_path / output, *options
        )

    columns = ("--user_column", "who", "--item_column", "what", "--timestamp_column", "when")
    first = run("first", *columns, "--item_feature_columns", "brand",
                "--shortest_sequence_for_user", 1,
                "--order_of_equal_times", "log", "--validation", "none")  # fmt: skip
    assert first.exception is None
    return run


@pytest.mark.slow
def test_a_log_may_begin_with_an_item_that_is_not_known(fitted_log, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("who,what,when,brand\n1,9,1,a\n1,5,2,a\n1,6,3,b\n")
    assert fitted_log("next", "--fitted", tmp_path / "first").exception is None
    rows = pd.read_parquet(tmp_path / "next/test/part.0.parquet")
    five = pd.read_parquet(tmp_path / "first/categories/what.parquet").set_index("key")["id"]["5"]
    assert [list(items) for items in rows["what_pos"]] == [[five], [five]]


@pytest.mark.slow
def test_columns_that_are_not_given_are_those_of_the_fit(fitted_log, tmp_path):
    result = fitted_log("next", "--fitted", tmp_path / "first")
    assert result.exception is None
    for name in ("test/part.0.parquet", "workflow.json"):
        assert (tmp_path / "next" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()


@pytest.mark.slow
def test_other_columns_than_those_of_the_fit_are_refused_in_words(fitted_log, tmp_path):
    result = fitted_log("next", "--fitted", tmp_path / "first", "--item_column", "brand")
    message = f"--item_column: expected what, as {tmp_path / 'first'} was fitted on, got brand."
    assert message in str(result.exception)
    result = fitted_log("next", "--fitted", tmp_path / "first", "--item_feature_columns", "")
    assert "--item_feature_columns: expected brand, as" in str(result.exception)
    assert "got none" in str(result.exception)
    assert isinstance(result.exception, MerlinSimError)


def test_nothing_is_pickled(dataset):
    for path in dataset.rglob("*"):
        assert path.is_dir() or path.suffix in (".parquet", ".json", ".yaml", ".pbtxt")
        assert path.is_dir() or not path.read_bytes().startswith(b"\x80")


def edit(path, change):
    """Change what a file says, as if it had been written so."""
    document = json.loads(path.read_text())
    document.pop(DIGEST)
    change(document)
    path.write_text(with_own_digest(document))


def configured(name, change, part="config"):
    """A change of a part of what GroupHistories is made of."""

    def changed(document):
        operators = document["operators"]
        histories = next(one for one in operators if one["operator"] == "GroupHistories")
        change(histories[part][name])

    return changed


def learned(name, change):
    """A change of a part of what GroupHistories learned."""
    return configured(name, change, "learned")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=8), "expected a workflow of format 9, found format 8"),
        (
            lambda d: d.update(extra=1),
            "extra: expected one of the keys history, grown_from, got the number 1",
        ),
        (lambda d: d.pop("history"), "expected a workflow of a behaviour log"),
        (
            lambda d: d["operators"][-1].update(operator="Categorify"),
            "expected a workflow of a behaviour log",
        ),
        (
            configured("rules", lambda r: r.update(seed="1")),
            "rules: seed: expected a whole number, got the text '1'",
        ),
        (configured("rules", lambda r: r.update(seed=-1)), "workflow.json: .*`seed` should lie"),
        (
            configured("rules", lambda r: r.update(validation_from="3")),
            "workflow.json: .*`validation_from` needs",
        ),
        (
            configured("rules", lambda r: r.pop("pad")),
            "rules: pad: expected true or false, got no such key",
        ),
        (
            configured("columns", lambda c: c.update(user="../x")),
            "should not be empty, contain `/`",
        ),
        (learned("sizes", lambda s: s.update(cat_id="3")), "sizes.cat_id: expected a whole number"),
        (
            learned("sizes", lambda s: s.update(cat_id=s["cat_id"] + 1)),
            "cat_id.parquet, column 'id': expected [0-9]+ values, found [0-9]+",
        ),
        (
            lambda d: d["files"].pop("categories/cat_id.parquet"),
            "files: expected the SHA-256 of categories/cat_id.parquet, found none",
        ),
        (
            lambda d: d["history"].update(files={"../x.parquet": "0"}),
            "history.files: expected names of files, one at least, found '../x.parquet'",
        ),
        (
            lambda d: d["history"].update(longest="6"),
            "history.longest: expected a whole number, got the text '6'",
        ),
    ],
)
def test_a_changed_document_is_refused(artefacts, change, message):
    edit(artefacts / "workflow.json", change)
    with pytest.raises(MerlinSimError, match=message):
        FittedWorkflow.load(artefacts)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("cat_id", lambda t: t.slice(0, 0), "'id': expected [0-9]+ values, found 0"),
        ("cat_id", lambda t: pa.concat_tables([t, t]), "'id': expected [0-9]+ values, found"),
        ("cat_id", lambda t: t.set_column(0, "id", pc.add(t["id"], 1)), "'id': expected 1 to"),
        ("cat_id", lambda t: t.drop_columns(["id"]), "'id': expected [0-9]+ values, found 0"),
        ("item_id", lambda t: t.drop_columns(["count"]), "'count': expected [0-9]+ values, found"),
        (
            "item_id",
            lambda t: t.set_column(2, "count", t["count"].cast("string")),
            "'count': expected whole numbers, found text",
        ),
        (
            "cat_id",
            lambda t: t.set_column(1, "key", pa.array([None, *t["key"].to_pylist()[1:]])),
            "'key': expected a value in each row, found null",
        ),
        (
            "user_id",
            lambda t: t.set_column(1, "key", pa.array([*t["key"].to_pylist()[1:], t["key"][1]])),
            "'key': expected each value once, found '.+' again",
        ),
        (
            "user_id",
            lambda t: t.set_column(0, "id", pa.array([1, 1, *range(3, len(t) + 1)])),
            "'id': expected each value once, found 1 again",
        ),
    ],
)
def test_vocabularies_that_cannot_be_some_are_refused_under_any_digest(
    artefacts, name, change, message
):
    path = artefacts / f"categories/{name}.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    edit(
        artefacts / "workflow.json",
        lambda document: document["files"].update({f"categories/{name}.parquet": sha256(path)}),
    )
    with pytest.raises(MerlinSimError, match=f"{name}.parquet, column {message}"):
        FittedWorkflow.load(artefacts)
