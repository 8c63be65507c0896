"""Many candidates for one user: the scores of a batch, with the user's part computed once.

A request asks for the scores of hundreds of candidates for one user. As a batch, every row would
repeat the user: the same histories embedded, the same GRU run, once for each candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from .blocks.checks import OptionError
from .blocks.exact_search_unit import ExactSearchUnit, LongInterest
from .blocks.general_search_unit import GeneralSearchUnit
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


@dataclass(frozen=True)
class _Request:
    """The vectors of a request, in float32."""

    targets: tf.Tensor
    """[candidates, dim]"""
    user: list[tf.Tensor]
    """The user's vectors beside each candidate, each [candidates, dim]."""
    long: tf.Tensor
    """The history, or its long part where the model splits it: [positions, dim]."""
    long_mask: tf.Tensor
    """[positions], bool"""
    short: tf.Tensor | None
    """The short part, zeros where padded: [short, dim]; None where the model does not split."""
    short_mask: tf.Tensor | None
    """[short], bool"""


def _embed(body: Any, features: Features) -> _Request:
    """Look everything up once."""
    split = getattr(body, "split", None)
    histories = features.positive
    if split is not None:
        histories = {name: split(ids) for name, ids in histories.items()}
    vectors = body.embedding({**features.user, **features.target_item, **histories})
    vectors = tf.nest.map_structure(lambda vector: tf.cast(vector, tf.float32), vectors)
    targets, user = body.join_item_and_user(vectors)
    rows = tf.shape(targets)[0]
    user = [tf.repeat(vector, rows, axis=0) for vector in user]
    history = [vectors[name] for name in body.channels.positive]
    if split is None:
        return _Request(targets, user, body.join(history)[0], features.mask[0], None, None)
    mask = split(features.mask)
    long = body.join([parts.long for parts in history])[0]
    short = body.join([parts.short for parts in history], mask.short)[0]
    return _Request(targets, user, long, mask.long[0], short, mask.short[0])


def _score_din(body: Any, features: Features) -> tf.Tensor:
    request = _embed(body, features)
    interest = attend(body.attention, request.targets, request.long, request.long_mask)
    return body.classifier(tf.concat([request.targets, interest, *request.user], axis=-1))


def _score_dien(body: Any, features: Features) -> tf.Tensor:
    request = _embed(body, features)
    state = evolve(body.interest, request.targets, request.short, request.short_mask)
    return body.classifier(tf.concat([request.targets, state, *request.user], axis=-1))


def _score_sim(body: Any, features: Features) -> tf.Tensor:
    request = _embed(body, features)
    targets = request.targets
    is_published = isinstance(body.general_search, GeneralSearchUnit) and isinstance(
        body.exact_search, ExactSearchUnit
    )
    if is_published:
        interest = search(body.options.top_k, targets, request.long, request.long_mask)
    else:
        interest = _long_interest(body, features, request)
    state = evolve(body.interest, targets, request.short, request.short_mask)
    parts = [interest.attended, interest.mean, targets, state, *request.user]
    return body.stage_two(tf.concat([tf.cast(part, tf.float32) for part in parts], axis=-1))


def _long_interest(body: Any, features: Features, request: _Request) -> LongInterest:
    """Run the search units of the paper's other forms, the embedded history beside each candidate.

    Categories, heads and time intervals mix candidate and position, so only the lookups are the
    user's alone.
    """
    rows = tf.shape(request.targets)[0]

    def beside(of_user: tf.Tensor) -> tf.Tensor:
        return tf.repeat(of_user, rows, axis=0)

    intervals = features.time_intervals
    repeated = features._replace(
        positive={name: beside(ids) for name, ids in features.positive.items()},
        mask=beside(features.mask),
        time_intervals=None if intervals is None else beside(intervals),
    )
    long = beside(request.long[tf.newaxis])
    found = body.search(repeated, request.targets, long)
    interest: LongInterest = body.attend(repeated, request.targets, long, found, False)
    return interest


_SCORES: dict[type, Callable[[Any, Features], tf.Tensor]] = {
    DINBody: _score_din,
    DIENBody: _score_dien,
    SIMBody: _score_sim,
}
