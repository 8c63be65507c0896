"""Forward, losses and every gradient of DIN, DIEN and SIM equal the golden cases."""

from __future__ import annotations

import pytest
import tensorflow as tf
from golden_cases import HERE, assert_close, golden_cases, read_golden

from merlin_sim.models.dien import DIENModel
from merlin_sim.models.din import DINModel
from merlin_sim.models.losses import PROBABILITY_EPSILON
from merlin_sim.models.sim import SIMModel

MODELS = {"din": DINModel, "dien": DIENModel, "sim": SIMModel}


def options_of(config):
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


def dense_roles(role, layers):
    for place, layer in enumerate(layers):
        yield f"{role}.dense_{place}.kernel", layer.kernel
        yield f"{role}.dense_{place}.bias", layer.bias


def classifier_roles(role, hidden, logit):
    yield from dense_roles(role, [*hidden.dense, logit])
    for place, prelu in enumerate(hidden.prelu):
        yield f"{role}.prelu_{place}.alpha", prelu.alpha


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


def weights_by_role(model):
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


def make_model(golden, make_schema):
    config = golden["config"]
    length = config["long_length"] + config["short_length"]
    schema = make_schema(config["user_cardinalities"], config["item_cardinalities"], length)
    model = MODELS[config["model_type"]].from_schema(schema, **options_of(config))
    roles = weights_by_role(model)
    assert set(roles) == set(golden["weight"])
    assert len(roles) == len(model.trainable_variables)
    for role, variable in roles.items():
        variable.assign(golden["weight"][role].reshape(variable.shape))
    return model, roles


def outputs_by_role(outputs, config):
    named = {"stage_two_logits" if config["model_type"] == "sim" else "logits": outputs.logits}
    if outputs.stage_one_logits is not None:
        named["stage_one_logits"] = outputs.stage_one_logits
    if outputs.auxiliary is not None:
        named["aux_click_probs"] = tf.sigmoid(outputs.auxiliary.click) + PROBABILITY_EPSILON
        named["aux_noclick_probs"] = tf.sigmoid(outputs.auxiliary.noclick) + PROBABILITY_EPSILON
    return named


@pytest.mark.parametrize(
    ("path", "in_graph"),
    [
        *(pytest.param(path, False, id=path.stem) for path in golden_cases(MODELS)),
        *(
            pytest.param(HERE / f"{name}.npz", True, id=f"{name}-graph", marks=pytest.mark.slow)
            for name in ("sim", "sim_length_0_and_1", "din_activation_unit")
        ),
    ],
)
def test_golden_outputs_losses_and_gradients(path, in_graph, make_schema):
    golden = read_golden(path)
    model, roles = make_model(golden, make_schema)
    columns = {n: tf.constant(v) for n, v in golden["input"].items() if n != "label"}
    label = tf.constant(golden["input"]["label"])

    def step():
        with tf.GradientTape() as tape:
            outputs = model.forward(columns, training=True, with_objective=True)
            losses, _ = model.compute_step(columns, label)
        # A short history of one position has no recurrence and no next one: no gradient is 0.
        zero = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(losses.total_loss, roles, unconnected_gradients=zero)
        return outputs, losses, {n: tf.convert_to_tensor(g) for n, g in gradients.items()}

    outputs, losses, gradients = (tf.function(step, autograph=False) if in_graph else step)()
    named = outputs_by_role(outputs, golden["config"])
    assert set(named) == set(golden["output"])
    for name, ours in named.items():
        assert_close(ours, golden["output"][name], f"output/{name}")
    by_name = dict(zip(("total", "classification", "aux"), losses, strict=True))
    for name, ours in by_name.items():
        assert_close(ours, golden["loss"][name], f"loss/{name}")
    assert set(gradients) == set(golden["grad"])
    for name, ours in gradients.items():
        assert_close(ours, golden["grad"][name], f"grad/{name}")
    inference = model.forward(columns)
    assert inference.stage_one_logits is None and inference.auxiliary is None
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
