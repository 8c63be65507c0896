"""Many candidates for one user: the scores of a batch, with the user's part computed once.

A request asks for the scores of hundreds of candidates for one user. As a batch, every row would
repeat the user: the same histories embedded, the same GRU run, once for each candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .blocks.checks import OptionError
from .body import Body
from .channels import Features
from .dien import DIENBody
from .din import DINBody
from .interest_model import InterestModel
from .one_user_blocks import attend, evolve, search
from .sim import SIMBody


def score_candidates(model: InterestModel, columns: dict[str, Any]) -> tf.Tensor:
    """Return the logit of each candidate: what ``forward`` gives where every row has this user.

    Under a float16 policy this is computed in float32 where ``forward`` rounds to float16.

    Args:
        model: Any model of this package.
        columns: Columns as ``forward`` takes them: those of the user and the history with one
            row, those of the target item with one row for each candidate.

    Returns:
        [candidates, 1], float32.
    """
    score = _SCORES.get(type(model.body))
    if score is None:
        raise OptionError(f"{type(model).__name__} has no rule for one user, many candidates.")
    return score(model.body, model.features(columns))


def _user(body: Body[Any], features: Features, candidates: tf.Tensor) -> list[tf.Tensor]:
    """The user's vector beside each candidate, in a list as ``embed_user`` gives it."""
    rows = tf.shape(candidates)[0]
    return [
        tf.repeat(tf.cast(vector, tf.float32), rows, axis=0) for vector in body.embed_user(features)
    ]


def _targets(body: Body[Any], features: Features) -> tf.Tensor:
    return tf.cast(body.embed(features.target_item), tf.float32)  # [candidates, dim]


def _short_history(body: Any, features: Features) -> tuple[tf.Tensor, tf.Tensor]:
    """The embedded short history, [short, dim], zeros where padded, and its mask."""
    mask = body.split(features.mask).short
    ids = {name: body.split(column).short for name, column in features.positive.items()}
    return tf.cast(body.embed_masked(ids, mask), tf.float32)[0], mask[0]


def _score_din(body: Any, features: Features) -> tf.Tensor:
    targets = _targets(body, features)
    history = tf.cast(body.embed(features.positive), tf.float32)[0]  # [history, dim]
    interest = attend(body.attention, targets, history, features.mask[0])
    return body.classifier(tf.concat([targets, interest, *_user(body, features, targets)], axis=-1))


def _score_dien(body: Any, features: Features) -> tf.Tensor:
    targets = _targets(body, features)
    state = evolve(body.interest, targets, *_short_history(body, features))
    return body.classifier(tf.concat([targets, state, *_user(body, features, targets)], axis=-1))


def _score_sim(body: Any, features: Features) -> tf.Tensor:
    targets = _targets(body, features)
    ids = {name: body.split(column).long for name, column in features.positive.items()}
    long_history = tf.cast(body.embed(ids), tf.float32)[0]  # [long, dim]
    mask = body.split(features.mask).long[0]
    interest = search(body.options.top_k, targets, long_history, mask)
    state = evolve(body.interest, targets, *_short_history(body, features))
    user = _user(body, features, targets)
    parts = [interest.attended, interest.mean, targets, state, *user]
    return body.stage_two(tf.concat(parts, axis=-1))


_SCORES: dict[type, Callable[[Any, Features], tf.Tensor]] = {
    DINBody: _score_din,
    DIENBody: _score_dien,
    SIMBody: _score_sim,
}
