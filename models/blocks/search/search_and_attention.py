"""What a search unit and an attention unit promise each other, and the table of both.

A search unit marks positions of a long history; an attention unit makes vectors of the positions
marked. Either can be exchanged without the other. Two things may pass between them beside the
marks: the features of each position, for who searches by them, and the weights that a search by
dot product has made on its way, for who attends by the same product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..attention.dot_attention import attention_weights, dot_scores


class Target(NamedTuple):
    """The target item of each sample."""

    vector: tf.Tensor
    """Its vector: [batch, dim]."""

    ids: Mapping[str, tf.Tensor]
    """Its features by the names of their columns, each [batch]."""


class LongHistory(NamedTuple):
    """The long history of each sample, oldest first."""

    vectors: tf.Tensor
    """The items' vectors: [batch, long, dim]. Those of padding are no zeros: mask them."""

    mask: tf.Tensor
    """Where a position is real: [batch, long], bool."""

    ids: Mapping[str, tf.Tensor]
    """The features of each position, [batch, long], by the names of the *target's* columns."""

    time_vectors: tf.Tensor | None = None
    """What the time since each position says: [batch, long, time dim]; None where there are no
    times or the attention unit does not read them."""


class DotWeights(NamedTuple):
    """Softmaxes of the dot products of target and positions, [batch, long], float32.

    They are :func:`~..attention.dot_attention.attention_weights` of
    :func:`~..attention.dot_attention.dot_scores` and nothing else, since
    :func:`~..attention.dot_attention.dot_attention_sums` takes their gradient as that.
    """

    kept: tf.Tensor
    """Over the positions kept, 0 elsewhere."""

    whole: tf.Tensor
    """Over all real positions, 0 elsewhere: what the first stage is trained on."""


class SearchResult(NamedTuple):
    """What a search found in a long history."""

    selected: tf.Tensor
    """The positions kept: [batch, long], bool, all of them real."""

    weights: DotWeights | None = None
    """The dot product's softmaxes, where the search made them; None where it scored otherwise."""


class LongInterest(NamedTuple):
    """The user's interest in the target as the long history tells it."""

    attended: tf.Tensor
    """Attention over the positions found: [batch, attended dim]."""

    mean: tf.Tensor
    """Their mean, sum / (count + 1): [batch, dim]."""

    searched: tf.Tensor | None
    """DIN's attention over the whole long history, what stage one is trained on: [batch, dim].
    None when not asked for."""


SearchOfCandidates = Callable[[Target], SearchResult]
"""Candidates of one user -> what is found for each."""

AttentionOfCandidates = Callable[[Target, SearchResult], LongInterest]
"""Candidates of one user, and what was found for each -> the interest in each."""


class SearchOptions(Protocol):
    """The options of a model that its units are made from."""

    @property
    def top_k(self) -> int:
        """How many positions a search keeps at most."""

    @property
    def category_feature(self) -> str | None:
        """The target item's column that is its category."""

    @property
    def heads(self) -> int | None:
        """Heads of the attention."""


class SearchUnit(Block):
    """Marks the positions of a long history that a target is about. It has no gradient."""

    @classmethod
    def from_options(cls, options: Any, **kwargs: Any) -> SearchUnit:
        """Make the unit from a model's options (:class:`SearchOptions`, and what it has beside)."""
        raise NotImplementedError

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Search for each target in the history beside it."""
        raise NotImplementedError

    def for_candidates(self, history: LongHistory) -> SearchOfCandidates | None:
        """Prepare one user's history, a batch of one, for many candidates.

        None, as here, for a unit that gains nothing by it: the history is then repeated.
        """
        return None

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the unit."""
        config: dict[str, Any] = super().get_config()
        config.pop("autocast", None)
        return config


class AttentionUnit(Block):
    """Makes vectors of the positions that a search unit marked."""

    reads_times: bool = False
    """Whether it needs the history's time vectors."""

    @classmethod
    def from_options(
        cls, options: Any, item_dim: int, time_dim: int, **kwargs: Any
    ) -> AttentionUnit:
        """Make the unit from a model's options; ``time_dim`` is 0 where there are no times."""
        raise NotImplementedError

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

    def weights_over(self, target: Target, history: LongHistory, mask: tf.Tensor) -> tf.Tensor:
        """Return each head's weights if the positions in ``mask`` were found, 0 elsewhere.

        Returns:
            [batch, heads, long], float32.
        """
        raise NotImplementedError

    def for_candidates(self, history: LongHistory) -> AttentionOfCandidates | None:
        """Prepare one user's history, a batch of one, for many candidates; None as above."""
        return None

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the unit."""
        config: dict[str, Any] = super().get_config()
        config.pop("autocast", None)
        return config


def dot_weights(target: Target, history: LongHistory, found: SearchResult) -> DotWeights:
    """Return the dot product's softmaxes: the search's own, or made here where it has none."""
    if found.weights is not None:
        return found.weights
    scores = tf.stop_gradient(dot_scores(target.vector, history.vectors))
    kept, whole = (attention_weights(scores, mask) for mask in (found.selected, history.mask))
    return DotWeights(kept, whole)


def mean_weights(selected: tf.Tensor) -> tf.Tensor:
    """Return the weights of the mean over the positions kept: 1 / (count + 1) at each of them."""
    kept = tf.cast(selected, tf.float32)
    return kept / (tf.reduce_sum(kept, axis=1, keepdims=True) + 1.0)


AnySearch = TypeVar("AnySearch", bound=type[SearchUnit])
AnyAttention = TypeVar("AnyAttention", bound=type[AttentionUnit])

SEARCH_UNITS: dict[str, type[SearchUnit]] = {}
"""The search units by name; each puts itself here where it is defined."""

ATTENTION_UNITS: dict[str, type[AttentionUnit]] = {}
"""The attention units by name."""


def register_search_unit(name: str) -> Callable[[AnySearch], AnySearch]:
    """Give a search unit the name that ``SIMOptions.search`` (``--search``) takes for it."""

    def register(unit: AnySearch) -> AnySearch:
        SEARCH_UNITS[name] = unit
        return unit

    return register


def register_attention_unit(name: str) -> Callable[[AnyAttention], AnyAttention]:
    """Give an attention unit the name by which SIM makes it from its options."""

    def register(unit: AnyAttention) -> AnyAttention:
        ATTENTION_UNITS[name] = unit
        return unit

    return register
