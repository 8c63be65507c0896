"""DLRM and DCNv2 as Merlin models, for all forms that a dataset of plain rows may have."""

from __future__ import annotations

from dataclasses import replace

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags
from ranking_rows import random_rows, ranking_schema, write_ranking_dataset
from sklearn.metrics import roc_auc_score

from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import DLRMModel, OptionError, build_model, load_model
from merlin_sim.models.blocks.embeddings.sharded_tables import sharded_tables
from merlin_sim.models.known_families import find_family
from merlin_sim.models.options import DLRMOptions
from merlin_sim.models.ranking import DLRMBlock, RankingChannels
from merlin_sim.parallel.placement.plan import PlanOptions
from merlin_sim.parallel.placement.planner import make_plan
from merlin_sim.parallel.steps.optimizers import LazyAdam
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.schema_file import write_schema

SMALL = {"embedding_dim": 8, "bottom_mlp_dims": (16, 8), "top_mlp_dims": (16, 1)}
CROSS = {**SMALL, "embedding_dims": (4, 8, 4), "cross_layers": 2, "cross_rank": 3}
OPTIONS = {"dlrm": SMALL, "dcnv2": CROSS}
FULL_RANK = ("dcnv2", {**CROSS, "cross_rank": None})
every_model = pytest.mark.parametrize("model_type", list(OPTIONS))


def batch_of(rows, **form):
    columns = {name: tf.constant(values) for name, values in random_rows(rows, **form).items()}
    return columns, columns.pop("clicked")


@every_model
def test_it_starts_as_published(model_type):
    tf.keras.utils.set_random_seed(1)
    options = {**OPTIONS[model_type], "top_mlp_dims": (400, 200, 1)}
    model = build_model(model_type, ranking_schema(), **options)
    for part in model.body.embeddings:
        for table in part.tables.values():
            values = table.table.embeddings.numpy()
            largest = np.abs(values).max()
            assert 0.7 * len(values) ** -0.5 < largest <= len(values) ** -0.5
    kernel, bias = model.body.top.dense[1].kernel.numpy(), model.body.top.dense[1].bias.numpy()
    assert kernel.std() == pytest.approx((2 / (400 + 200)) ** 0.5, rel=0.1)
    assert bias.std() == pytest.approx(200**-0.5, rel=0.2)


FORMS = (
    {"numbers": 0, "cardinalities": (4, 5, 2)},
    {"cardinalities": (1, 5, 2)},  # a column whose every key is rare
    {"numbers": 1, "cardinalities": (3, 3, 3)},
)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("options", [*OPTIONS.items(), FULL_RANK], ids=["dlrm", "dcnv2", "full"])
def test_any_number_of_columns_of_any_size(options, form):
    model = build_model(options[0], ranking_schema(**form), **options[1])
    copy = type(model).from_config(model.get_config())
    copy.set_weights(model.get_weights())
    columns, labels = batch_of(5, **form)
    losses, logits = model.compute_step(columns, labels)
    assert np.isfinite(float(losses.total_loss)) and logits.shape == [5, 1]
    np.testing.assert_array_equal(copy.forward(columns).logits, model.forward(columns).logits)
    for row in range(5):
        alone = model.forward({name: values[row : row + 1] for name, values in columns.items()})
        np.testing.assert_allclose(alone.logits, logits[row : row + 1], rtol=1e-5, atol=1e-6)


@pytest.fixture
def narrowed(tmp_path):
    """A dataset whose spec leaves out of its channels an id and a number that its schema tags."""
    path = write_ranking_dataset(tmp_path / "data", rows=400)
    dataset = DatasetDirectory.open(path)
    left = {name: names[:-1] or names for name, names in dataset.spec.channel_spec.items()}
    replace(dataset.spec, channel_spec=left).write(path / "feature_spec.yaml")
    number = replace(dataset.schema["number_3"], tags=[Tags.CONTINUOUS])
    others = dataset.schema.excluding_by_name(["number_3"]).column_schemas.values()
    write_schema(Schema([*others, number]), path / "schema.pbtxt")
    return path


@pytest.mark.parametrize("has_schema", [True, False], ids=["tagged", "derived"])
def test_columns_are_those_of_the_specs_channels(has_schema, narrowed):
    if not has_schema:
        (narrowed / "schema.pbtxt").unlink()
    dataset = DatasetDirectory.open(narrowed)
    found = RankingChannels.read(dataset.schema)
    columns = [*found.categorical, *found.numerical]
    assert columns == [f"category_{n}" for n in (0, 1)] + [f"number_{n}" for n in (0, 1, 2)]
    assert {"category_2", "number_3"} < {*dataset.schema.column_names}


def test_a_fit_reads_the_specs_channels(narrowed):
    dataset = DatasetDirectory.open(narrowed)
    model = DLRMModel.from_dataset(dataset, **SMALL)
    model.compile("adam", run_eagerly=True)
    model.fit(dataset, batch_size=400, verbose=0)
    assert model.predict(dataset, batch_size=400).shape == (400, 1)


def test_half_precision_keeps_tables_and_logits_whole():
    schema = ranking_schema()
    model = build_model("dlrm", schema, **SMALL)
    half = type(model)(schema, model.options, dtype="mixed_float16")
    half.set_weights(model.get_weights())
    columns, _ = batch_of(6)
    logits = half.forward(columns).logits
    assert logits.dtype == tf.float32
    assert {weight.dtype for weight in half.trainable_weights} == {tf.float32}
    np.testing.assert_allclose(logits, model.forward(columns).logits, atol=2e-2)


@pytest.mark.slow
def test_fit_and_predict_take_a_directory_and_traces_are_saved(tmp_path):
    form = {"cardinalities": (7, 40), "numbers": 1}
    dataset = DatasetDirectory.open(write_ranking_dataset(tmp_path / "data", rows=400, **form))
    tf.keras.utils.set_random_seed(1)
    least = {"embedding_dim": 2, "bottom_mlp_dims": (2,), "top_mlp_dims": (1,)}
    model = build_model("dlrm", dataset.schema, **least)
    model.compile("adam", run_eagerly=True)
    history = model.fit(dataset, batch_size=100, epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]
    predicted = model.predict(dataset, batch_size=200)
    assert predicted.shape == (400, 1)
    model.save(tmp_path / "saved", save_traces=True)
    columns, _ = batch_of(400, seed=1, **form)
    np.testing.assert_allclose(model(columns), predicted, rtol=1e-5)
    np.testing.assert_allclose(load_model(tmp_path / "saved")(columns), predicted, rtol=1e-6)


def test_the_block_chains_as_merlins_do():
    model = mm.Model(DLRMBlock.from_schema(ranking_schema(), **SMALL), mm.BinaryOutput("clicked"))
    model.compile("adam", run_eagerly=True)
    columns, labels = batch_of(8)
    batch = {name: value[:, None] for name, value in columns.items()}
    model(batch)
    before = [variable.numpy() for variable in model.trainable_variables]
    logs = model.train_step((batch, labels))
    assert np.isfinite(logs["loss"])
    for variable, was in zip(model.trainable_variables, before, strict=True):
        assert (variable.numpy() != was).any(), variable.name


def test_missing_columns_are_named_and_what_would_be_ignored_is_refused():
    model = build_model("dlrm", ranking_schema(), **SMALL)
    columns, _ = batch_of(2)
    del columns["number_1"]
    with pytest.raises(OptionError, match="DLRMBlock is missing columns: number_1"):
        model.forward(columns)
    with pytest.raises(OptionError, match="does not take `post`.*mm.Model"):
        type(model)(ranking_schema(), model.options, post=tf.keras.layers.Activation("relu"))


@pytest.mark.slow
def test_what_follows_the_lookups_of_spread_tables_is_compiled_by_itself():
    columns, labels = batch_of(6)
    family = find_family("dcnv2")
    tables = family.tables(ranking_schema(), family.options.parse(dict(CROSS)))
    plan, found = make_plan(tables, PlanOptions(ranks=1, samples=8, cut="whole")), []
    for compiles in (False, True):
        tf.keras.utils.set_random_seed(1)
        with sharded_tables(plan, Ranks(), compiles):
            model = build_model("dcnv2", ranking_schema(), **CROSS)

        def step(model=model):
            with tf.GradientTape() as tape:
                losses, logits = model.compute_step(columns, labels)
            gradients = tape.gradient(losses[0], model.trainable_variables)
            return [logits, *map(tf.convert_to_tensor, gradients)]

        in_graph = tf.function(step, autograph=False)
        found += [[value.numpy() for value in call()] for call in (step, in_graph)]
        calls = [
            node.attr["_XlaMustCompile"].b
            for node in in_graph.get_concrete_function().graph.as_graph_def().node
            if node.op.endswith("PartitionedCall")
        ]
        assert sum(calls) == (2 if compiles else 0)  # forward and backward
    for others in found[1:]:
        for ours, theirs in zip(others, found[0], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def planted_rows(rows, seed):
    """Rows whose clicks depend on four ids and a number, as a logistic model says."""
    random, effects = np.random.default_rng(seed), np.random.default_rng(0).normal(size=(4, 50))
    ids, number = random.integers(0, 50, (rows, 4)), random.normal(size=rows)
    score = 0.7 * effects[np.arange(4), ids].sum(axis=1) + number
    columns = {f"cat_{n}": tf.constant(ids[:, n], tf.int32) for n in range(4)}
    columns["number"] = tf.constant(number, tf.float32)
    return columns, tf.constant(random.random(rows) < 1 / (1 + np.exp(-score)), tf.int8)


@pytest.mark.slow
def test_bfloat16_leaves_the_auc_as_it_is():
    label = ColumnSchema("label", dtype="int8", tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION])
    number = ColumnSchema("number", dtype="float32", tags=[Tags.CONTINUOUS])
    domains = [{"domain": {"min": 0, "max": 49, "name": f"cat_{n}"}} for n in range(4)]
    categories = [
        ColumnSchema(
            domain["domain"]["name"], dtype="int32", tags=[Tags.CATEGORICAL], properties=domain
        )
        for domain in domains
    ]
    options = DLRMOptions(**{**SMALL, "top_mlp_dims": (32, 16, 1)})
    (columns, clicked), (tested, labels) = planted_rows(40_000, 1), planted_rows(20_000, 2)
    aucs = []
    for policy in ("float32", "mixed_bfloat16"):
        tf.keras.utils.set_random_seed(1)
        model = DLRMModel(Schema([label, *categories, number]), options, dtype=policy)
        model.compile(LazyAdam(0.01), metrics=[])
        model.fit(columns, clicked, batch_size=512, verbose=0)
        aucs.append(roc_auc_score(labels, model.forward(tested).logits))
    assert aucs[0] > 0.8 and aucs[1] == pytest.approx(aucs[0], abs=1e-3)
