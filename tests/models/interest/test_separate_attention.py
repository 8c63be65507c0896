"""Tables for search and attention beside those that say what is taken (DARE)."""

from __future__ import annotations

import json

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from grouped_batches import WEIGHT, grouped_batch, losses_and_gradients

from merlin_sim.models import build_model
from merlin_sim.models.known_families import find_family
from merlin_sim.models.saving import named_variables, table_names

KINDS = {
    "din": {},
    "din with the activation unit": {"attention": "activation_unit"},
    "sim": {"long_seq_length": 7, "top_k": 3},
    "sim with heads": {"long_seq_length": 7, "top_k": 3, "heads": 2},
    "twin": {"long_seq_length": 7, "top_k": 3, "heads": 2, "stage_one": True},
}
BY = "attention_embedding"


def build(kind, schema, **options):
    tf.keras.utils.set_random_seed(5)
    model = build_model(kind.split()[0], schema, embedding_dim=4, **KINDS[kind], **options)
    for variable in model.trainable_variables:  # away from zero biases and equal slopes
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    return model


def taken(name):
    """The name of the table that says what is taken, beside one that searches and attends."""
    if BY not in name:
        return name
    return name.replace(BY, "embedding").replace("_attention", "")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "width"), zip(KINDS, (4, 6, 6, 4, 6), strict=True))
def test_with_equal_tables_it_is_the_model_with_one_and_gradients_add_up(kind, width, make_schema):
    """Those of attention are as wide as those that are given, whatever the others are."""
    schema = make_schema()
    one, two = (
        build(
            kind,
            schema,
            separate_attention=separate,
            tables=None if width == 4 else {"item_0": mm.EmbeddingTable(6, schema["item_0"])},
        )
        for separate in (False, True)
    )
    shared, own = named_variables(one), named_variables(two)
    assert len(own) == len(shared) + 2  # the item's two features
    for name, variable in own.items():
        variable.assign(shared[taken(name)])
    columns, labels = grouped_batch(schema)
    results = []
    for model in (one, two):
        losses, logits, gradients = losses_and_gradients(model, columns, labels, WEIGHT)
        names = {variable.ref(): name for name, variable in named_variables(model).items()}
        trained = [names[variable.ref()] for variable in model.trainable_variables]
        results.append((losses, logits, dict(zip(trained, gradients, strict=True))))
    (losses, logits, gradients), (of_two, logits_of_two, parts) = results
    np.testing.assert_allclose(of_two, losses, rtol=1e-5)
    np.testing.assert_allclose(logits_of_two, logits, atol=1e-5)
    sums = dict.fromkeys(gradients, 0.0)
    for name, gradient in parts.items():
        sums[taken(name)] = sums[taken(name)] + gradient.numpy()
    for name, gradient in gradients.items():
        error = np.linalg.norm(sums[name] - gradient.numpy())
        assert error <= 2e-5 * np.linalg.norm(gradient) + 1e-7, name
    assert all(np.any(gradient) for name, gradient in parts.items() if BY in name)


@pytest.mark.slow
def test_a_model_with_a_table_of_another_width_is_made_again_of_its_configuration(make_schema):
    schema = make_schema()
    tables = {"item_0": mm.EmbeddingTable(6, schema["item_0"])}
    model = build("twin", schema, separate_attention=True, tables=tables)
    embedding = model.body.attention_embedding
    assert embedding.width_of["item_0"] == 6 and embedding.width_of["item_1"] == 4
    copy = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert [v.shape for v in copy.variables] == [v.shape for v in model.variables]
    alone = type(embedding).from_config(json.loads(json.dumps(embedding.get_config())))
    assert alone.width_of == embedding.width_of


@pytest.mark.slow
def test_a_plan_of_tables_has_those_of_attention_too(make_schema):
    schema = make_schema()
    model, family = build("sim", schema, separate_attention=True), find_family("sim")
    planned = {table.name: table for table in family.tables(schema, model.options)}
    assert set(planned) == set(table_names(model).values())
    variables = named_variables(model)
    for name, table in table_names(model).items():
        assert variables[name].shape == [planned[table].rows, planned[table].width]
    assert {name for name in planned if name.endswith("_attention")} == {
        "item_0_attention",
        "item_1_attention",
    }
