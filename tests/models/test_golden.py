"""Forward, losses and every gradient of the published models equal the golden cases."""

from __future__ import annotations

import pytest
import tensorflow as tf
from golden_cases import HERE, assert_close, golden_cases, model_of, read_golden
from ranking_rows import ranking_schema

from merlin_sim.models import MODELS
from merlin_sim.models.losses import PROBABILITY_EPSILON

ROWS = ("dlrm", "dcnv2")
HISTORIES = ("din", "dien", "sim")


def history_options(config):
    mlp = config["mlp"]
    options = {"embedding_dim": config["embedding_dim"]}
    if config["model_type"] == "din":
        options["attention"] = config["attention"]
    else:
        options |= {"long_seq_length": config["long_length"], "aux_mlp_dims": mlp["aux"]}
    if config["model_type"] == "sim":
        options |= {"top_k": config["top_k"], "stage_one_mlp_dims": mlp["stage_one"]}
    is_sim = config["model_type"] == "sim"
    options["stage_two_mlp_dims"] = mlp["stage_two" if is_sim else "classifier"]
    return options


def row_options(config):
    widths = config["embedding_dim"]
    options = {name: tuple(config[name]) for name in ("bottom_mlp_dims", "top_mlp_dims")}
    if config["model"] == "dlrm":
        return {**options, "embedding_dim": widths[0]}
    cross = {
        "cross_layers": config["num_cross_layers"],
        "cross_rank": config["cross_layer_projection_dim"],
    }
    return {**options, **cross, "embedding_dims": tuple(widths)}


def dense_roles(role, layers):
    for index, layer in enumerate(layers):
        yield f"{role}.dense_{index}.kernel", layer.kernel
        yield f"{role}.dense_{index}.bias", layer.bias


def classifier_roles(role, hidden, logit):
    yield from dense_roles(role, [*hidden.dense, logit])
    for index, prelu in enumerate(hidden.prelu):
        yield f"{role}.prelu_{index}.alpha", prelu.alpha


def interest_roles(interest):
    yield "interest.attention.item_dense.kernel", interest.item_dense.kernel
    yield "interest.attention.item_dense.bias", interest.item_dense.bias
    yield "interest.attention.item_prelu.alpha", interest.item_prelu.alpha
    yield from dense_roles("interest.attention", interest.activation_unit.dense)
    yield "interest.gru.kernel", interest.gru.kernel
    yield "interest.gru.recurrent_kernel", interest.gru.recurrent_kernel
    yield "interest.gru.bias", interest.gru.bias
    yield "interest.augru.gates.kernel", interest.augru.gates_kernel
    yield "interest.augru.gates.bias", interest.augru.gates_bias
    yield "interest.augru.candidate.kernel", interest.augru.candidate_kernel
    yield "interest.augru.candidate.bias", interest.augru.candidate_bias


def history_weights(model):
    body = model.body
    roles = {f"{n}.table": t.table.embeddings for n, t in body.embedding.tables.items()}
    evaluated = "stage_two" if hasattr(body, "stage_one") else "classifier"
    roles |= dict(classifier_roles(evaluated, body.classifier, model.output_block.to_call))
    if hasattr(body, "stage_one"):
        stage_one = body.stage_one
        roles |= dict(classifier_roles("stage_one", stage_one, stage_one.logit))
    if hasattr(body, "interest"):
        roles |= dict(interest_roles(body.interest))
        roles |= dict(dense_roles("aux", body.auxiliary.dense))
    elif body.attention.activation_unit is not None:
        roles |= dict(dense_roles("attention", body.attention.activation_unit.dense))
    return roles


def row_weights(model):
    body = model.body
    tables = {name: t for part in body.embeddings for name, t in part.tables.items()}
    roles = {
        f"table_{index}": tables[name].table.embeddings
        for index, name in enumerate(body.channels.categorical)
    }
    roles |= dict(dense_roles("bottom", body.bottom.dense))
    roles |= dict(dense_roles("top", [*body.top.dense, model.output_block.to_call]))
    if hasattr(body, "cross"):
        for index, u in enumerate(body.cross.u):  # none of full rank
            roles[f"cross_{index}.u.kernel"] = u.kernel
        for index, v in enumerate(body.cross.v):
            roles[f"cross_{index}.v.kernel"] = v.kernel
            roles[f"cross_{index}.v.bias"] = v.bias
    return roles


def make_model(golden, make_schema):
    config = golden["config"]
    if model_of(config) in ROWS:
        schema = ranking_schema(config["cardinalities"], config["numerical"])
        model = MODELS[config["model"]].from_schema(schema, **row_options(config))
        roles = row_weights(model)
    else:
        length = config["long_length"] + config["short_length"]
        schema = make_schema(config["user_cardinalities"], config["item_cardinalities"], length)
        model = MODELS[config["model_type"]].from_schema(schema, **history_options(config))
        roles = history_weights(model)
    assert set(roles) == set(golden["weight"])
    assert len(roles) == len(model.trainable_variables)
    for role, variable in roles.items():
        variable.assign(golden["weight"][role].reshape(variable.shape))
    return model, roles


def columns_of(golden):
    given = dict(golden["input"])
    label = given.pop("label")
    if "categorical" in given:
        ids, numbers = given["categorical"], given["numerical"]
        given = {f"category_{index}": ids[:, index] for index in range(ids.shape[1])}
        given |= {f"number_{index}": numbers[:, index] for index in range(numbers.shape[1])}
    return {name: tf.constant(values) for name, values in given.items()}, tf.constant(label)


def outputs_by_role(outputs, config):
    named = {"stage_two_logits" if model_of(config) == "sim" else "logits": outputs.logits}
    if getattr(outputs, "stage_one_logits", None) is not None:
        named["stage_one_logits"] = outputs.stage_one_logits
    if getattr(outputs, "auxiliary", None) is not None:
        named["aux_click_probs"] = tf.sigmoid(outputs.auxiliary.click) + PROBABILITY_EPSILON
        named["aux_noclick_probs"] = tf.sigmoid(outputs.auxiliary.noclick) + PROBABILITY_EPSILON
    return named


@pytest.mark.parametrize("path", golden_cases(HISTORIES + ROWS), ids=lambda path: path.stem)
def test_golden_outputs_losses_and_gradients(path, make_schema):
    golden = read_golden(path)
    model, roles = make_model(golden, make_schema)
    columns, label = columns_of(golden)
    more = {} if model_of(golden["config"]) in ROWS else {"with_objective": True}

    with tf.GradientTape() as tape:
        outputs = model.forward(columns, training=True, **more)
        losses, _ = model.compute_step(columns, label)
    # A short history of one position has no recurrence and no next one: no gradient is 0.
    zero = tf.UnconnectedGradients.ZERO
    gradients = tape.gradient(losses[0], roles, unconnected_gradients=zero)
    named = outputs_by_role(outputs, golden["config"])
    assert set(named) == set(golden["output"])
    for name, ours in named.items():
        assert_close(ours, golden["output"][name], f"output/{name}")
    names = ("total",) if len(golden["loss"]) == 1 else ("total", "classification", "aux")
    for name, ours in zip(names, losses, strict=True):
        assert_close(ours, golden["loss"][name], f"loss/{name}")
    assert set(gradients) == set(golden["grad"])
    for name, ours in gradients.items():
        assert_close(tf.convert_to_tensor(ours), golden["grad"][name], f"grad/{name}")
    inference = model.forward(columns)
    assert set(outputs_by_role(inference, golden["config"])) <= {"logits", "stage_two_logits"}
    evaluated = golden["output"].get("logits", golden["output"].get("stage_two_logits"))
    assert_close(inference.logits, evaluated, "logits at inference")


def test_golden_candidates_of_one_user(make_schema):
    golden = read_golden(HERE / "sim_one_user.npz")
    model, roles = make_model(golden, make_schema)
    given = golden["input"]
    columns = {
        name: tf.constant(array[tf.newaxis] if name in ("item_0", "item_1") else array[:1])
        for name, array in given.items()
        if name != "label"
    }
    with tf.GradientTape() as tape:
        losses, logits = model.compute_step(columns, tf.constant(given["label"][tf.newaxis]))
    assert_close(logits, golden["output"]["stage_two_logits"], "output/stage_two_logits")
    assert_close(losses.total_loss, golden["loss"]["total"], "loss/total")
    for name, ours in tape.gradient(losses.total_loss, roles).items():
        assert_close(tf.convert_to_tensor(ours), golden["grad"][name], f"grad/{name}")


def test_each_golden_case_names_the_published_code():
    paths = sorted(HERE.glob("*.npz"))
    assert len(paths) == 12
    for path in paths:
        published = read_golden(path)["config"]["published"]
        assert published["code"].startswith("NVIDIA/DeepLearningExamples ")
        assert len(published["commit"]) == 40
        assert len(published["sha256_of_python_files"]) == 64
