"""The models that bench_quality.py compares, by name, and what they stand beside."""

from __future__ import annotations

from typing import Any, NamedTuple

COUNTS, RECENCY = "counts", "recency"
"""In a model's name: it reads the dataset of `preprocess log --counts`; and the days since what
belongs to the target was last seen, where times are dates, with its recent popularity."""


class Model(NamedTuple):
    """A model of this package."""

    words: str
    """What `merlin-sim train` is given."""
    family: str
    options: dict[str, Any]
    """The same for a model of random weights, as far as it changes what a score costs."""


LIFELONG = {"history_counts": True, "attention_sums": True}
MODELS = {
    "preset lifelong, counts": Model("--preset lifelong", "sim", LIFELONG),
    "preset lifelong, counts, recency": Model("--preset lifelong", "sim", LIFELONG),
    "preset lifelong, counts, recency, pieces, one loss": Model(
        "--preset lifelong --number_pieces 24 --stage_one false --auxiliary_loss false",
        "sim",
        LIFELONG,
    ),
    "preset lifelong": Model("--preset lifelong", "sim", LIFELONG),
    "SIM": Model("--model_type sim", "sim", {}),
    "DIN": Model("--model_type din", "din", {}),
    "STCA": Model("--model_type stca", "stca", {}),
    "DIEN": Model("--model_type dien", "dien", {}),
    "ETA": Model("--model_type eta", "eta", {}),
    "SDIM": Model("--model_type sdim", "sdim", {}),
    "TWIN": Model("--model_type twin", "twin", {}),
    "SIM, separate attention": Model(
        "--model_type sim --separate_attention true", "sim", {"separate_attention": True}
    ),
    "SIM, history similarity": Model(
        "--model_type sim --history_similarity true", "sim", {"history_similarity": True}
    ),
}
PRICED = [name for name in MODELS if COUNTS not in name]
"""Those whose scores are measured: a count of the whole history costs nothing beside the others."""
TREES, REGRESSION = "LightGBM", "logistic regression"
TREES_OF_RECENCY = f"{TREES}, {RECENCY}"
FUXICTR = [f"FuxiCTR {name}" for name in ("SIM", "DIN", "TWIN", "ETA", "SDIM", "DIEN")]
TRAINED = [TREES, TREES_OF_RECENCY, REGRESSION, *MODELS, *FUXICTR]
RULES = "rules"
"""All that need no training, the oracle too."""
ORACLE = "oracle: the probability that made the label"
FIRST = [RULES, TREES, TREES_OF_RECENCY, REGRESSION, *list(MODELS)[:7]]
"""What tells most, which is run first."""
