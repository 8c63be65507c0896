"""Contract of search units and attention units, and the table of both.

A search unit marks positions of a long history; an attention unit makes vectors of the positions
marked. Either can be exchanged without the other. Two things may pass between them beside the
marks: the features of each position, for who searches by them, and the weights that a search by
dot product has made on its way, for who attends by the same product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from ..attention import attention_weights, dot_attention_sums, dot_scores
from ..serialization import ConfiguredBlock
from ..shapes import is_one, sizes


class Target(NamedTuple):
    """The candidates of each user; a batch of plain rows has one beside each user."""

    vector: tf.Tensor
    """Their vectors: [users, candidates, dim]."""
    ids: Mapping[str, tf.Tensor]
    """Their features by the names of their columns, each [users, candidates]."""


class LongHistory(NamedTuple):
    """The long history of each user, oldest first, and what each candidate may see of it."""

    vectors: tf.Tensor
    """The items' vectors: [users, long, dim]. Those of padding are no zeros: mask them."""
    mask: tf.Tensor
    """The positions that are real and that a candidate may see: [users, candidates, long], bool.
    Where all candidates of a user see the same, one row for all: [users, 1, long]."""
    ids: Mapping[str, tf.Tensor]
    """The features of each position, [users, long], by the names of the *target's* columns."""
    time_vectors: tf.Tensor | None = None
    """What the time since each position says: [users, long, time dim], or where candidates see
    different spans [users, windows, long, time dim], one window for as many candidates that
    follow each other; None where there are no times or the attention unit does not read them."""
    values: tf.Tensor | None = None
    """What is taken of each position where ``vectors`` are only what it is found by, [users, long,
    dim]; None where that is the same."""

    @property
    def taken(self) -> tf.Tensor:
        """What is taken of each position: [users, long, dim]."""
        return self.vectors if self.values is None else self.values


class DotWeights(NamedTuple):
    """Softmaxes of the dot products with the positions, [users, candidates, long], float32.

    They are :func:`~..attention.attention_weights` of
    :func:`~..attention.dot_scores` and nothing else, since
    :func:`~..attention.dot_attention_sums` takes their gradient as that.
    """

    kept: tf.Tensor
    """Over the positions kept, 0 elsewhere."""
    whole: tf.Tensor
    """Over all positions that it may see, 0 elsewhere: what the first stage is trained on."""


class SearchResult(NamedTuple):
    """Positions that a search found in a long history."""

    selected: tf.Tensor
    """The positions kept, all of them real and seen: [users, candidates, long], bool, or one row
    for all candidates, as of a mask."""
    weights: DotWeights | None = None
    """The dot product's softmaxes, where the search made them; None where it scored otherwise."""
    marks: tf.Tensor | None = None
    """``selected`` as 1 and 0, float32, where the search has it so; None where it does not."""
    scores: tf.Tensor | None = None
    """The scores of the attention that follows, where the search is by the same, with their
    gradient: [users, candidates, heads, long], float32."""
    strength: tf.Tensor | None = None
    """How strongly each position is about the candidate, where the search says that and leaves
    nothing out: [users, candidates, long], float32, 0 where it is not selected."""


class LongInterest(NamedTuple):
    """The user's interest in each candidate as the long history shows it."""

    attended: tf.Tensor
    """Attention over the positions found: [users, candidates, attended dim]."""
    mean: tf.Tensor | None
    """Their mean, sum / (count + 1): [users, candidates, dim]. None from a unit without one."""
    searched: tf.Tensor | None
    """DIN's attention over the whole long history, what stage one is trained on: [users,
    candidates, dim]. None when not asked for."""


class LongHistoryUnit(ConfiguredBlock):
    """A block over candidates and a long history, in float32 under every policy."""

    parts: tuple[str, ...] = ()
    """The blocks within that are built for candidates' vectors, as the unit is."""

    def __init__(self, **kwargs: Any) -> None:
        """Have vectors come as they are."""
        super().__init__(**{"autocast": False, **kwargs})

    def build(self, input_shape: Any) -> None:
        """Create the weights for candidates of [users, candidates, dim]."""
        shape = input_shape.vector if isinstance(input_shape, Target) else input_shape
        for name in self.parts:
            getattr(self, name).build(tf.TensorShape(shape))
        super().build(input_shape)


class SearchUnit(LongHistoryUnit):
    """Marks the positions of a long history that a candidate is about. It has no gradient."""

    @classmethod
    def from_options(cls, options: Any, **kwargs: Any) -> SearchUnit:
        """Make the unit from a model's options."""
        raise NotImplementedError

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Search for each candidate in what it may see of its user's history."""
        raise NotImplementedError


class AttentionUnit(LongHistoryUnit):
    """Makes vectors of the positions that a search unit marked."""

    reads_times: bool = False
    """Whether it needs the history's time vectors."""
    has_mean: bool = True
    """Whether it gives the mean of the positions found."""

    def attended_dim(self, item_dim: int) -> int:
        """Return the length of ``attended`` for item vectors of this length."""
        raise NotImplementedError

    def call(
        self,
        target: Target,
        history: LongHistory,
        found: SearchResult,
        stage_one: bool = False,
    ) -> LongInterest:
        """Attend to what the search found; for ``stage_one`` to the whole history too."""
        raise NotImplementedError

    def interest(
        self, attended: tf.Tensor, mean: tf.Tensor | None = None, searched: tf.Tensor | None = None
    ) -> LongInterest:
        """Give what was found the unit's precision."""
        found = LongInterest(attended, mean, searched)
        return LongInterest(*(p if p is None else tf.cast(p, self.compute_dtype) for p in found))

    def scores(self, target: Target, history: LongHistory) -> tf.Tensor:
        """Return each head's scores, [users, candidates, heads, long]; here dot products."""
        return dot_scores(target.vector, history.vectors)[:, :, tf.newaxis]

    def weights_over(self, target: Target, history: LongHistory, mask: tf.Tensor) -> tf.Tensor:
        """Return each head's weights if the positions in ``mask`` were found, 0 elsewhere."""
        return attention_weights(self.scores(target, history), mask[:, :, tf.newaxis, :])


def dot_weights(target: Target, history: LongHistory, found: SearchResult) -> DotWeights:
    """Return the dot product's softmaxes: the search's own, or made here where it has none."""
    if found.weights is not None:
        return found.weights
    scores = tf.stop_gradient(dot_scores(target.vector, history.vectors))
    kept, whole = (attention_weights(scores, mask) for mask in (found.selected, history.mask))
    return DotWeights(kept, whole)


def dot_sums(
    target: Target,
    history: LongHistory,
    found: SearchResult,
    of: Sequence[str],
    rows: list[tf.Tensor],
) -> list[tf.Tensor]:
    """Attend to a history by the dot product, and sum it with constant weights.

    Returns:
        One [users, candidates, dim], float32, for each name in ``of``, a field of
        :class:`DotWeights`, and then for each of ``rows``, [users, candidates, long], float32.
    """
    if history.values is None:
        weights = dot_weights(target, history, found) if of else None
        attentions = [getattr(weights, name) for name in of]
        return dot_attention_sums(target.vector, history.vectors, attentions, rows)
    scores = dot_scores(target.vector, history.vectors)
    masks = {"kept": found.selected, "whole": history.mask}
    attentions = [attention_weights(scores, masks[name]) for name in of]
    values = tf.cast(history.values, tf.float32)
    return [tf.matmul(row, values) for row in (*attentions, *rows)]


def marks_of(target: Target, found: SearchResult) -> tf.Tensor:
    """Return 1 for each position kept and 0 elsewhere: [users, candidates, long], float32."""
    marks = tf.cast(found.selected, tf.float32) if found.marks is None else found.marks
    users, candidates, _ = sizes(target.vector)
    if marks.shape[1] == 1 and not is_one(candidates):  # one row for all candidates
        marks = tf.broadcast_to(marks, [users, candidates, sizes(marks)[2]])
    return marks


def mean_of(total: tf.Tensor, marks: tf.Tensor) -> tf.Tensor:
    """Return the mean over the positions kept, sum / (count + 1), of their sum."""
    return total / (tf.reduce_sum(marks, axis=-1, keepdims=True) + 1.0)


AnySearch = TypeVar("AnySearch", bound=type[SearchUnit])

SEARCH_UNITS: dict[str, type[SearchUnit]] = {}
"""The search units by name; each puts itself here where it is defined."""


def register_search_unit(name: str) -> Callable[[AnySearch], AnySearch]:
    """Give a search unit the name that ``SIMOptions.search`` (``--search``) takes for it."""

    def register(unit: AnySearch) -> AnySearch:
        SEARCH_UNITS[name] = unit
        return unit

    return register
