"""A servable holds what serving needs, appears whole or not at all, and moves anywhere."""

from __future__ import annotations

import re
import shutil

import merlin.io
import merlin.models.tf as mm
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from full_disk import written_at_most
from merlin.schema import ColumnSchema, Schema, Tags
from small_users import write_users_dataset

import merlin_sim as ms
from merlin_sim.foundation.batch_names import OFFSETS, VALUES
from merlin_sim.foundation.exceptions import DatasetWarning, MerlinSimError
from merlin_sim.models.composed_model import ComposedModel
from merlin_sim.models.registry import model_class
from merlin_sim.models.saving import columns_signature
from merlin_sim.schemas.channels import channels_of
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.serving.deployment.judged import open_judged, refuse_trained_rows
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable, ServableError
from merlin_sim.serving.triton import export
from merlin_sim.serving.triton.export import export_model


def test_what_is_in_it(servable, dataset, model):
    files = set(servable.manifest["files"])
    assert {"feature_spec.yaml", "schema.pbtxt", "workflow.json", "model/saved_model.pb"} <= files
    assert {f"categories/{name}.parquet" for name in ("user_id", "item_id", "cat_id")} <= files
    assert not [name for name in files if "keras" in name or name.endswith((".pkl", ".py"))]
    assert servable.manifest["model"]["type"] == "din"
    assert servable.manifest["model"]["options"] == model.options.to_dict()
    assert servable.spec.feature_spec == dataset.spec.feature_spec
    assert channels_of(servable.schema) == dataset.channels
    for name in files:
        content = (servable.path / name).read_bytes()
        assert not re.match(rb"\x80[\x02-\x05]", content), f"{name} is a pickle"
        assert str(servable.path.parent).encode() not in content, name


def scores_of(exported, encoder, events):
    """What the model of an export says of events: as rows, and as users with candidates."""
    scorer = Scorer(exported)
    encoded = [encoder.encode(encoder.parse(event)) for event in events]
    found = []
    for one_user_from in (None, 1):
        scorer.one_user_from = one_user_from
        found.append(np.concatenate(scorer.score_events(encoded)))
    return found


@pytest.mark.slow
def test_the_signatures_are_the_schema_and_histories_may_be_padded_rows(
    servable, model, dataset, tmp_path, encoder, events, expected
):
    plain = {
        name: (tf.int64, [None])
        for channel in ("user_features", "target_item_features")
        for name in dataset.channels[channel]
    }
    ragged, rows = dict(plain), dict(plain)
    for name in dataset.channels["positive_history"]:
        ragged[name + "__values"] = (tf.int64, [None])
        ragged[name + "__offsets"] = (tf.int32, [None])
        rows[name] = (tf.int64, [None, 20])
    padded = Servable.open(export_model(model, dataset, tmp_path / "out", pad=True))
    for exported, wanted in ((servable, ragged), (padded, rows)):
        loaded = tf.saved_model.load(str(exported.model))
        for signature in ("serving_default", "one_user"):
            found = loaded.signatures[signature]
            _, inputs = found.structured_input_signature
            assert {n: (s.dtype, s.shape.as_list()) for n, s in inputs.items()} == wanted
            outputs = found.structured_outputs
            assert {n: (s.dtype, s.shape.as_list()) for n, s in outputs.items()} == {
                "score": (tf.float32, [None, 1])
            }
    for scores in scores_of(padded, encoder, events):
        np.testing.assert_allclose(scores, expected, atol=1e-5)


def composed(dataset, kind, heads=False, **options):
    """A model of Merlin's with random weights, and what it reads of the rows of test."""
    others = [
        ColumnSchema("bought", dtype="int64", tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION]),
        ColumnSchema("rating", dtype="float32", tags=[Tags.TARGET, Tags.REGRESSION]),
    ]
    tf.keras.utils.set_random_seed(5)
    block = getattr(ms, kind).from_schema(dataset.schema, embedding_dim=4, **options)
    label = block.channels.label
    outputs = mm.OutputBlock(Schema([dataset.schema[label], *others])) if heads else None
    model = mm.Model(block, mm.MLPBlock([4]), outputs or mm.BinaryOutput(label))
    rows = merlin.io.Dataset(
        [str(f) for f in dataset.files("test")], engine="parquet", schema=dataset.schema
    )
    columns, _ = mm.Loader(rows, batch_size=1000, shuffle=False).peek()
    read = model.input_schema.column_names
    columns = {n: column for n, column in columns.items() if n.partition("__")[0] in read}
    model(columns)
    for variable in model.trainable_variables:
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    return model, columns


@pytest.mark.slow
def test_a_composed_model_is_exported_with_its_search_by_one_of_its_outputs(
    dataset, tmp_path, encoder, events
):
    model, columns = composed(dataset, "SIMBlock", heads=True, long_seq_length=14, top_k=4)
    predicted = model(columns)["rating/regression_output"]
    assert len(predicted) == len(events) and np.std(predicted) > 0.01
    path = export_model(model, dataset, tmp_path / "out", target="rating", pad=True)
    exported = Servable.open(path)
    assert exported.manifest["model"]["type"] == "composed of sim"
    assert not [name for name in exported.columns.inputs if "neg_hist" in name]
    for scores in scores_of(exported, encoder, events):
        np.testing.assert_allclose(scores, predicted[:, 0], atol=1e-5)


def test_a_composed_model_that_no_request_could_feed_is_refused(dataset, make_model, tmp_path):
    def refused(model, **options):
        with pytest.raises(MerlinSimError) as error:
            export_model(model, dataset, tmp_path / "out", **options)
        return str(error.value)

    model, rows = composed(dataset, "DINBlock")
    np.testing.assert_allclose(ComposedModel(model, None).scores(rows), model(rows), atol=1e-6)
    assert "`target` should be 'label'. Received" in refused(model, target="bought")
    assert "`target` is for mm.Model(block, outputs)" in refused(make_model(), target="label")
    plain = mm.Model(mm.MLPBlock([4]), mm.BinaryOutput("label"))
    assert "should have one block of this package" in refused(plain)
    block = ms.DINBlock.from_schema(dataset.schema, embedding_dim=4)
    assert "call or train it first" in refused(mm.Model(block, mm.BinaryOutput("label")))
    own = type("OwnBlock", (ms.DINBlock,), {}).from_schema(dataset.schema, embedding_dim=4)
    built = mm.Model(own, mm.BinaryOutput("label"))
    built(rows)
    assert "by which a request is known. Received: OwnBlock" in refused(built)
    age = Schema([ColumnSchema("age", dtype="float32", tags=[Tags.CONTINUOUS])])
    both = mm.ParallelBlock({"block": block, "more": mm.InputBlockV2(age)})
    wider = mm.Model(both, mm.MLPBlock([4]), mm.BinaryOutput("label"))
    columns = {**rows, "age": tf.ones([len(rows["user_id"]), 1])}
    wider(columns)
    assert "reads age too" in refused(wider)
    assert not list(tmp_path.iterdir())


def test_what_fails_leaves_nothing_and_what_was_there_stays(
    make_model, dataset, tmp_path, monkeypatch
):
    def fail(*_):
        raise OSError(28, "No space left on device")

    model, mine = make_model("din"), tmp_path / "mine"
    mine.mkdir()
    (mine / "notes").write_text("x")
    with pytest.raises(MerlinSimError, match="--overwrite"):
        export_model(model, dataset, mine)
    with pytest.raises(MerlinSimError, match="holds nothing of what is read"):
        export_model(model, dataset, dataset.path, overwrite=True)
    assert DatasetDirectory.open(dataset.path).files("train")
    monkeypatch.setattr(export, "save_served_model", lambda *_: None)
    monkeypatch.setattr(export, "write_manifest", fail)
    with pytest.raises(MerlinSimError, match="No space left"):
        export_model(model, dataset, tmp_path / "out")
    assert [*tmp_path.rglob("*")] == [mine, mine / "notes"]


def test_a_vocabulary_larger_than_its_table_is_refused(make_model, dataset, tmp_path):
    copy = tmp_path / "dataset"
    shutil.copytree(dataset.path, copy)
    path = copy / "categories" / "cat_id.parquet"
    keys = [f"k{i}" for i in range(50)]
    pq.write_table(pa.table({"id": list(range(1, 51)), "key": keys}), path)
    with pytest.warns(DatasetWarning, match="ids end at 50, those of cat_id .*: some have no row"):
        changed = DatasetDirectory.open(copy)
    with pytest.raises(ServableError, match="50 keys, more than the cardinality of 'cat_id'"):
        export_model(make_model("din"), changed, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_servable_without_its_model_is_refused(servable, tmp_path):
    from merlin_sim.serving.servable import write_manifest

    for name in ("feature_spec.yaml", "schema.pbtxt"):
        shutil.copy(servable.path / name, tmp_path / name)
    write_manifest(tmp_path, {"request": servable.manifest["request"]})
    with pytest.raises(ServableError, match="without model/saved_model.pb"):
        Servable.open(tmp_path)
    assert Servable.open(tmp_path, with_model=False).vocabulary("user_id") is None
    write_manifest(tmp_path, {})
    with pytest.raises(ServableError, match="does not say what a request is"):
        Servable.open(tmp_path, with_model=False)


@pytest.mark.slow
def test_a_gate_knows_which_rows_trained_a_model_that_python_exported(servable, dataset):
    judged = open_judged(servable.path)
    with pytest.raises(MerlinSimError, match="expected rows that did not train the challenger"):
        refuse_trained_rows(judged, judged, dataset, "train", force=False, say=print)
    assert not judged.was_trained_on(dataset, "test")


@pytest.mark.slow
def test_a_full_disk_is_said_with_what_is_free(make_model, dataset, tmp_path):
    """TensorFlow meets it in the weights."""
    with written_at_most(20_000), pytest.raises(MerlinSimError) as error:
        export_model(make_model("din"), dataset, tmp_path / "out")
    assert str(error.value).startswith(f"{tmp_path / 'out'}: ")
    assert "MiB are free" in str(error.value) and str(tmp_path) in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("family", "options", "reads_times"),
    [("two_tower", {}, False), ("stca", {"time_buckets": None}, False), ("twin", {}, True)],
)
def test_a_request_brings_what_the_model_reads_of_a_dataset_with_times(
    tmp_path, monkeypatch, family, options, reads_times
):
    dataset = DatasetDirectory.open(
        write_users_dataset(tmp_path / "dataset", [[[8, 6, 7]]], time_intervals="hours")
    )
    model = model_class(family).from_schema(dataset.schema, embedding_dim=2, **options)
    model.build()
    saved = []
    monkeypatch.setattr(export, "save_served_model", lambda _, schema, *more: saved.append(schema))
    path = export_model(model, dataset, tmp_path / "out")
    columns = Servable.open(path, with_model=False).columns
    signature = columns_signature(saved[0])
    assert set(columns.inputs) == set(signature)
    assert (columns.intervals is not None) == reads_times
    row = {
        name: tf.ones([2 if name.endswith(VALUES) else 1, *spec.shape[1:]], spec.dtype)
        for name, spec in signature.items()
    }
    row |= {name: tf.constant([0, 2]) for name in row if name.endswith(OFFSETS)}
    assert model.forward(row).logits.shape[0] == 1
