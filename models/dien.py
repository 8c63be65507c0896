"""Deep Interest Evolution Network (https://arxiv.org/abs/1809.03672)."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ..foundation.gpu_forms import has_gpu_forms
from .blocks.attention import TargetAttention
from .blocks.recurrence import AuxiliaryLogits, AuxiliaryNetwork, Evolution, InterestEvolution
from .blocks.search.history_split import HistorySplit
from .blocks.serialization import register_block
from .blocks.shapes import as_rows, gather_or_zero, is_one, repeat_per_candidate, sharing_of, sizes
from .interest_block import InterestBlock, InterestModel
from .interest_channels import Features
from .losses import Outputs
from .options import DIENOptions


class ShortWindows(NamedTuple):
    """How the short history is cut out of a batch's histories: each window, or all in one span.

    Windows of one user overlap: what is looked up is the span, where there are several.
    """

    split: HistorySplit
    """Where histories are split."""
    ends: tf.Tensor | None
    """The windows' ends: [users, windows]; None where all candidates see the whole history."""
    in_span: tf.Tensor | None
    """Where each window is in the span: [users, windows, short]; None where each is cut out."""
    one_pass: bool
    """Whether the model goes over the span, and not over each window."""

    @classmethod
    def of(cls, split: HistorySplit, ends: tf.Tensor | None, one_pass: bool) -> ShortWindows:
        """Cut as the model's ``one_pass`` says."""
        has_span = ends is not None and (one_pass or not is_one(sizes(ends)[1]))
        in_span = split.windows_in_span(ends) if has_span else None
        return cls(split, ends, in_span, one_pass and has_span)

    @property
    def in_shared_span(self) -> tf.Tensor | None:
        """Where each window is in the span that the model goes over; None without one."""
        return self.in_span if self.one_pass else None

    def cut(self, column: tf.Tensor) -> tf.Tensor:
        """Cut out of [users, positions]: [users, windows, short], or [users, 1, span]."""
        return self.ids(column) if self.one_pass else self.split(column, self.ends).short

    def ids(self, column: tf.Tensor) -> tf.Tensor:
        """Return what is to be looked up of [users, positions], each position once."""
        if self.in_span is not None:
            return self.split.span(column)
        return self.split(column, self.ends).short

    def masked(self, vectors: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Give each window its vectors of those that were looked up, zeros where there is none.

        Args:
            vectors: [users, windows, short, dim], or of the span [users, 1, span, dim].
            mask: What :meth:`cut` gives: where there is a position.
        """
        seen = tf.cast(mask, vectors.dtype)[..., tf.newaxis]
        if self.in_span is None or self.one_pass:
            return vectors * seen
        length = sizes(vectors)[2]
        if has_gpu_forms():  # a GPU rounds products to TF32
            indices = tf.clip_by_value(self.in_span, 0, length - 1)
            return tf.gather(vectors[:, 0], indices, batch_dims=1) * seen
        # A product, whose gradient is one too: that of a gather adds up row by row.
        chosen = seen * tf.one_hot(self.in_span, length, dtype=vectors.dtype)
        users, windows, short = sizes(mask)
        chosen = tf.reshape(chosen, [users, windows * short, length])
        dim = vectors.shape[-1]
        return tf.reshape(tf.matmul(chosen, vectors[:, 0]), [users, windows, short, dim])


def auxiliary_of_samples(
    network: AuxiliaryNetwork,
    evolution: Evolution,
    short: tf.Tensor,
    negative: tf.Tensor,
    mask: tf.Tensor,
    training: bool,
    in_span: tf.Tensor | None = None,
) -> AuxiliaryLogits:
    """Return each sample's auxiliary logits: a window that several candidates share counts for all.

    Of a span they are made once, and taken for every window that has both of their positions.
    """
    states = [as_rows(state) for state in evolution.states]
    windows = (as_rows(part) for part in (short, negative, mask))
    logits: AuxiliaryLogits = network(states, *windows, training=training)
    of_windows = mask
    if in_span is not None:
        of_windows, pairs = in_span, in_span[..., 1:] - 1
        logits = AuxiliaryLogits(*(as_rows(gather_or_zero(part, pairs)) for part in logits))
    sharing = sharing_of(evolution.final_state, of_windows)
    return AuxiliaryLogits(*(repeat_per_candidate(part, sharing) for part in logits))


def attend_to_short(
    attention: TargetAttention, candidates: tf.Tensor, short: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
    """Attend to the window that each candidate sees: [users, candidates, attended dim]."""
    users, count, dim = sizes(candidates)
    windows, sharing = sizes(mask)[1], sharing_of(candidates, mask)
    together = tf.reshape(candidates, [users * windows, sharing, dim])
    mask = as_rows(mask)[:, tf.newaxis]  # the same for all candidates of a window
    attended = attention(together, as_rows(short), mask)
    return tf.reshape(attended, [users, count, attention.attended_dim])


UNITS_PER_EMBEDDING_DIM = 6
"""Size of the GRUs' states in embedding dims, as published."""


@register_block
class DIENBlock(InterestBlock[DIENOptions]):
    """Interest evolution over the short history, then the classifier's hidden layers.

    hidden = layers of [target, InterestEvolution(target, short history), user]
    """

    options_type = DIENOptions

    def make_blocks(self) -> None:
        """Make interest evolution and auxiliary network."""
        options, policy = self.options, self._dtype_policy
        units = UNITS_PER_EMBEDDING_DIM * options.embedding_dim
        short_length = self.channels.history_length - options.long_length
        self.split = HistorySplit(options.long_length, short_length, name="split")
        self.interest = InterestEvolution(units, dtype=policy, name="interest")
        self.has_auxiliary_loss = options.auxiliary_loss
        self.auxiliary: AuxiliaryNetwork | None = None
        if options.auxiliary_loss:
            self.auxiliary = AuxiliaryNetwork(
                self.item_dim, options.aux_mlp_dims, dtype=policy, name="aux"
            )

    def build_blocks(self) -> None:
        """Create their weights."""
        self.interest.build(tf.TensorShape([None, None, self.item_dim]))
        if self.auxiliary is not None:
            self.auxiliary.build(tf.TensorShape([None, self.interest.units]))

    @property
    def classified_dim(self) -> int:
        """Length of target, final state, further features and user."""
        width: int = self.item_dim + self.interest.units + self.user_dim
        return width + self.further_dim

    def forward(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return the last hidden layer, and with the objective the auxiliary network's logits."""
        ids = {**features.user, **features.target_item, **features.lists}
        with_negatives = with_objective and self.has_auxiliary_loss
        histories = [features.positive, *([features.negative] if with_negatives else [])]
        windows = ShortWindows.of(self.split, features.window_ends, self.options.one_pass)
        for history in histories:
            ids |= {n: windows.ids(column) for n, column in history.items()}
        vectors = self.embedding(ids, with_gradient=training or with_objective)
        target = self.join_target(vectors)  # [users, candidates, dim]
        mask = windows.cut(features.real)
        items = self.join([vectors[n] for n in self.channels.positive])
        short = windows.masked(items, mask)

        evolution = self.interest(target, short, mask, windows.in_shared_span)
        parts = [target, evolution.final_state, *self.further(features, vectors)]
        rows = self.join_rows(parts, vectors)
        hidden = self.classifier(rows, training=training)
        if not with_objective or self.auxiliary is None:
            return Outputs(hidden)
        negative = windows.masked(self.join([vectors[n] for n in self.channels.negative]), mask)
        auxiliary = auxiliary_of_samples(
            self.auxiliary, evolution, short, negative, mask, training, windows.in_shared_span
        )
        return Outputs(hidden, auxiliary=auxiliary)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DIENModel(InterestModel):
    """DIEN as a Merlin model; see :class:`~.interest_block.InterestModel`."""

    body_type = DIENBlock
