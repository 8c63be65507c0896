"""Forward, loss and every gradient of DLRM and DCNv2 equal the golden cases."""

from __future__ import annotations

import pytest
import tensorflow as tf
from golden_cases import assert_close, golden_cases, read_golden
from ranking_rows import ranking_schema

from merlin_sim.models.ranking import DCNv2Model, DLRMModel

MODELS = {"dlrm": DLRMModel, "dcnv2": DCNv2Model}


def options_of(config):
    widths = config["embedding_dim"]
    options = {name: tuple(config[name]) for name in ("bottom_mlp_dims", "top_mlp_dims")}
    if config["model"] == "dlrm":
        return {**options, "embedding_dim": widths[0]}
    cross = {
        "cross_layers": config["num_cross_layers"],
        "cross_rank": config["cross_layer_projection_dim"],
    }
    return {**options, **cross, "embedding_dims": tuple(widths)}


def weights_by_role(model):
    body = model.body
    tables = {name: t for part in body.embeddings for name, t in part.tables.items()}
    roles = {
        f"table_{place}": tables[name].table.embeddings
        for place, name in enumerate(body.channels.categorical)
    }
    top = [*body.top.dense, model.output_block.to_call]
    for role, layers in (("bottom", body.bottom.dense), ("top", top)):
        for place, layer in enumerate(layers):
            roles[f"{role}.dense_{place}.kernel"] = layer.kernel
            roles[f"{role}.dense_{place}.bias"] = layer.bias
    if hasattr(body, "cross"):
        for place, u in enumerate(body.cross.u):  # none of full rank
            roles[f"cross_{place}.u.kernel"] = u.kernel
        for place, v in enumerate(body.cross.v):
            roles[f"cross_{place}.v.kernel"] = v.kernel
            roles[f"cross_{place}.v.bias"] = v.bias
    return roles


def make_model(golden):
    config = golden["config"]
    schema = ranking_schema(config["cardinalities"], config["numerical"])
    model = MODELS[config["model"]].from_schema(schema, **options_of(config))
    roles = weights_by_role(model)
    assert set(roles) == set(golden["weight"])
    assert len(roles) == len(model.trainable_variables)
    for role, variable in roles.items():
        variable.assign(golden["weight"][role])
    return model, roles


def columns_of(golden):
    ids, numbers = golden["input"]["categorical"], golden["input"]["numerical"]
    columns = {f"category_{place}": tf.constant(ids[:, place]) for place in range(ids.shape[1])}
    return columns | {
        f"number_{place}": tf.constant(numbers[:, place]) for place in range(numbers.shape[1])
    }


@pytest.mark.slow
@pytest.mark.parametrize("path", golden_cases(MODELS), ids=lambda path: path.stem)
def test_golden_outputs_loss_and_gradients(path):
    golden = read_golden(path)
    model, roles = make_model(golden)
    columns, label = columns_of(golden), tf.constant(golden["input"]["label"])

    def step():
        with tf.GradientTape() as tape:
            losses, logits = model.compute_step(columns, label)
        gradients = tape.gradient(losses.total_loss, roles)
        return logits, losses, {n: tf.convert_to_tensor(g) for n, g in gradients.items()}

    for compute in (step, tf.function(step, autograph=False)):
        logits, losses, gradients = compute()
        assert_close(logits, golden["output"]["logits"], "output/logits")
        assert_close(losses.total_loss, golden["loss"]["total"], "loss/total")
        assert set(gradients) == set(golden["grad"])
        for name, ours in gradients.items():
            assert_close(ours, golden["grad"][name], f"grad/{name}")
    assert_close(model.forward(columns).logits, golden["output"]["logits"], "at inference")
