"""Many candidates for one user: the scores of a batch, with the user's part computed once.

A request asks for the scores of hundreds of candidates for one user. As a batch, every row would
repeat the user: the same histories embedded, the same GRU run, once for each candidate.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..row_parts import in_parts
from .interest_model import InterestModel


def score_candidates(model: InterestModel, columns: dict[str, Any]) -> tf.Tensor:
    """Return the logit of each candidate: what ``forward`` gives where every row has this user.

    What is computed once is the block's to say:
    :meth:`~.interest_block.InterestBlock.for_candidates`. Under a float16 policy most of it is
    computed in float32 where ``forward`` rounds to float16.

    Args:
        model: Any model of this package, or of a block made like its blocks.
        columns: Columns as ``forward`` takes them: those of the user and the history with one
            row, those of the target item with one row for each candidate.

    Returns:
        [candidates, 1], float32.
    """
    features = model.features(columns)
    hidden = model.body.candidate_function(features)
    return in_parts(lambda ids: model.logits(hidden(ids)), features.target_item)
