"""Models of histories in small, one for each way of being made; made for histories of 10."""

from __future__ import annotations

import tensorflow as tf

from merlin_sim.models import build_model

SIM = {"long_seq_length": 7, "top_k": 3}
OPTIONS = {
    "din": {},
    "din_activation_unit": {"attention": "activation_unit"},
    "din_counts": {"history_counts": True, "attention_sums": True, "history_similarity": True},
    "dien": {"long_seq_length": 7},
    "sim": SIM,
    "sim_hard": {"long_seq_length": 7, "top_k": 2, "search": "hard", "category_feature": "item_1"},
    "sim_heads": {**SIM, "heads": 2},
    "sim_separate": {**SIM, "separate_attention": True, "history_similarity": True},
    "sim_summary": {
        "long_seq_length": 4,
        "top_k": 3,
        "history_prototypes": 3,
        "recent_length": 6,
        "history_counts": True,
    },
    "eta": {**SIM, "heads": 2, "history_counts": True},
    "sdim": {
        "long_seq_length": 7,
        "hashes": 6,
        "bits_per_hash": 2,
        "stage_one": True,
        "short_history": "dien",
    },
    "twin": {
        "long_seq_length": 9,
        "top_k": 3,
        "heads": 2,
        "short_history": "none",
        "attention_sums": True,
    },
    "stca": {"heads": 2, "position_buckets": 3},
    "stca_summary": {"heads": 2, "history_prototypes": 3, "recent_length": 4},
}


def build_kind(kind, schema, **options):
    """Make a model of a kind whose biases are not zero and whose slopes differ."""
    tf.keras.utils.set_random_seed(5)
    options = {"embedding_dim": 4, **OPTIONS[kind], **options}
    model = build_model(kind.split("_")[0], schema, **options)
    for variable in model.trainable_variables:
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    return model
