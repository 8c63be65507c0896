"""Tables for search and attention beside those that say what is taken (DARE)."""

from __future__ import annotations

import json

import merlin.models.tf as mm
import numpy as np
import pytest
from grouped_batches import WEIGHT, grouped_batch, losses_and_gradients
from interest_kinds import build_kind

from merlin_sim.models.known_families import find_family
from merlin_sim.models.saving import named_variables, table_names

BY = "attention_embedding"


def taken(name):
    """The name of the table that says what is taken, beside one that searches and attends."""
    if BY not in name:
        return name
    return name.replace(BY, "embedding").replace("_attention", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "width"),
    [("din", 4), ("din_activation_unit", 6), ("sim", 6), ("sim_heads", 4), ("twin", 6)],
)
def test_with_equal_tables_it_is_the_model_with_one_and_gradients_add_up(kind, width, schema):
    """Those of attention are as wide as those that are given, whatever the others are."""
    more = {"stage_one": True} if kind == "twin" else {}
    one, two = (
        build_kind(
            kind,
            schema,
            separate_attention=separate,
            tables=None if width == 4 else {"item_0": mm.EmbeddingTable(6, schema["item_0"])},
            **more,
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


def test_a_model_with_a_table_of_another_width_is_made_again_of_its_configuration(schema):
    tables = {"item_0": mm.EmbeddingTable(6, schema["item_0"])}
    model = build_kind("twin", schema, separate_attention=True, tables=tables)
    embedding = model.body.attention_embedding
    assert embedding.width_of["item_0"] == 6 and embedding.width_of["item_1"] == 4
    copy = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert [v.shape for v in copy.variables] == [v.shape for v in model.variables]
    alone = type(embedding).from_config(json.loads(json.dumps(embedding.get_config())))
    assert alone.width_of == embedding.width_of


def test_a_plan_of_tables_has_those_of_attention_too(schema, built):
    model = built("sim_separate")
    planned = {table.name: table for table in find_family("sim").tables(schema, model.options)}
    assert set(planned) == set(table_names(model).values())
    variables = named_variables(model)
    for name, table in table_names(model).items():
        assert variables[name].shape == [planned[table].rows, planned[table].width]
    of_attention = {name for name in planned if name.endswith("_attention")}
    assert of_attention == {"item_0_attention", "item_1_attention"}
