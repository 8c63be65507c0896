"""Many candidates for one user: the scores of a batch, with the user's part computed once.

A request asks for the scores of hundreds of candidates for one user. As a batch, every row would
repeat the user: the same histories embedded, the same GRU run, once for each candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .blocks.checks import OptionError
from .blocks.exact_search_unit import ExactSearchUnit, LongInterest
from .blocks.general_search_unit import GeneralSearchUnit
from .channels import Features
from .dien import DIENBody
from .din import DINBody
from .interest_model import InterestModel
from .one_user_blocks import OfCandidates, attention_to, evolution_of, search_in
from .parallel_parts import in_parts
from .sim import SIMBody

TargetIds = dict[str, tf.Tensor]
"""Features of the candidates, each [candidates]."""


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
    user_part = _USER_PARTS.get(type(model.body))
    if user_part is None:
        raise OptionError(f"{type(model).__name__} has no rule for one user, many candidates.")
    features = model.features(columns)
    return in_parts(user_part(model.body, features), features.target_item)


class _User:
    """The vectors of a user, in float32.

    Attributes:
        vectors: The user's own, each [1, dim].
        long: The history, or its long part where the model splits it: [positions, dim].
        long_mask: [positions], bool.
        short: The short part, zeros where padded: [short, dim]; None where the model does not
            split.
        short_mask: [short], bool; None where the model does not split.
    """

    def __init__(self, body: Any, features: Features) -> None:
        """Look everything up."""
        split = getattr(body, "split", None)
        histories = features.positive
        if split is not None:
            histories = {name: split(ids) for name, ids in histories.items()}
        vectors = _float32(body.embedding({**features.user, **histories}, with_gradient=False))
        self.body = body
        self.vectors = [vectors[name] for name in body.channels.user]
        history = [vectors[name] for name in body.channels.positive]
        self.short = self.short_mask = None
        if split is None:
            self.long, self.long_mask = body.join(history)[0], features.mask[0]
            return
        mask = split(features.mask)
        self.long, self.long_mask = body.join([part.long for part in history])[0], mask.long[0]
        self.short = body.join([part.short for part in history], mask.short)[0]
        self.short_mask = mask.short[0]

    def embed(self, ids: TargetIds) -> tf.Tensor:
        """Look candidates up: [candidates, dim]."""
        vectors = _float32(self.body.embedding(ids, with_gradient=False))
        return self.body.join([vectors[name] for name in self.body.channels.target_item])

    def beside(self, parts: list[tf.Tensor]) -> tf.Tensor:
        """Put the user's vectors at the end of each candidate's: [candidates, all dims]."""
        rows = tf.shape(parts[0])[0]
        user = [tf.repeat(vector, rows, axis=0) for vector in self.vectors]
        return tf.concat([*(tf.cast(part, tf.float32) for part in parts), *user], axis=-1)


def _din_user(body: Any, features: Features) -> Callable[[TargetIds], tf.Tensor]:
    user = _User(body, features)
    return _classify(user, attention_to(body.attention, user.long, user.long_mask))


def _dien_user(body: Any, features: Features) -> Callable[[TargetIds], tf.Tensor]:
    user = _User(body, features)
    return _classify(user, evolution_of(body.interest, user.short, user.short_mask))


def _classify(user: _User, read: OfCandidates) -> Callable[[TargetIds], tf.Tensor]:
    """Return the classifier of target, what ``read`` makes of it, and user."""

    def score(ids: TargetIds) -> tf.Tensor:
        targets = user.embed(ids)
        return user.body.classifier(user.beside([targets, read(targets)]))

    return score


def _sim_user(body: Any, features: Features) -> Callable[[TargetIds], tf.Tensor]:
    user = _User(body, features)
    evolve = evolution_of(body.interest, user.short, user.short_mask)
    search = search_in(body.options.top_k, user.long, user.long_mask)
    is_published = isinstance(body.general_search, GeneralSearchUnit) and isinstance(
        body.exact_search, ExactSearchUnit
    )

    def score(ids: TargetIds) -> tf.Tensor:
        targets = user.embed(ids)
        if is_published:
            interest = search(targets)
        else:
            interest = _long_interest(body, features._replace(target_item=ids), targets, user.long)
        parts = [interest.attended, interest.mean, targets, evolve(targets)]
        return body.stage_two(user.beside(parts))

    return score


def _long_interest(
    body: Any, features: Features, targets: tf.Tensor, long: tf.Tensor
) -> LongInterest:
    """Run the search units of the paper's other forms, the embedded history beside each candidate.

    Categories, heads and time intervals mix candidate and position, so only the lookups are the
    user's alone.
    """
    rows = tf.shape(targets)[0]

    def beside(of_user: tf.Tensor) -> tf.Tensor:
        return tf.repeat(of_user, rows, axis=0)

    intervals = features.time_intervals
    repeated = features._replace(
        positive={name: beside(ids) for name, ids in features.positive.items()},
        mask=beside(features.mask),
        time_intervals=None if intervals is None else beside(intervals),
    )
    history = beside(long[tf.newaxis])
    found = body.search(repeated, targets, history)
    interest: LongInterest = body.attend(repeated, targets, history, found, False)
    return interest


def _float32(vectors: Any) -> Any:
    return tf.nest.map_structure(lambda vector: tf.cast(vector, tf.float32), vectors)


_USER_PARTS: dict[type, Callable[[Any, Features], Callable[[TargetIds], tf.Tensor]]] = {
    DINBody: _din_user,
    DIENBody: _dien_user,
    SIMBody: _sim_user,
}
"""Computes what is the user's, and returns the function of the candidates that is left."""
