"""DIEN's middle: how an interest evolves over the short history."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from ...parallel.steps.fused import fused
from .activation_unit import ActivationUnit
from .attention import masked_softmax
from .checks import check_dims, check_positive, check_rate
from .mlp import PReLU, affine, build_in_turn, dense_layers
from .serialization import ConfiguredBlock, register_block
from .shapes import Size, as_rows, gather_or_zero, is_one, repeat_per_candidate, sharing_of, sizes


@register_block
class InterestExtractor(ConfiguredBlock):
    """Keras's own GRU (``reset_after``), with its weights, unrolled over a short history.

        z = sigmoid(x W_z + b_z + h U_z + b'_z)
        r = sigmoid(x W_r + b_r + h U_r + b'_r)
        c = tanh(x W_c + b_c + r (h U_c + b'_c))
        h' = z h + (1 - z) c

    Padded positions run through as zeros. Each gate has its own product, with which its sigmoid is
    fused: cutting one wide product into gates would cost more than it saves, forward and, above
    all, backward.

    >>> states = InterestExtractor(6)([tf.ones([2, 4])] * 5)
    >>> len(states), states[-1].shape
    (5, TensorShape([2, 6]))

    Args:
        units: Size of the state.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = check_positive("units", units)

    def build(self, input_shape: Any) -> None:
        """Create the weights for positions of [batch, dim] each."""
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        width = 3 * self.units
        self.kernel = self.add_weight("kernel", [int(shape[-1]), width])
        self.recurrent_kernel = self.add_weight(
            "recurrent_kernel", [self.units, width], initializer="orthogonal"
        )
        self.bias = self.add_weight("bias", [2, width], initializer="zeros")
        super().build(input_shape)

    def call(self, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Return the state after each position: one [batch, units] each.

        Args:
            inputs: One [batch, dim] for each position, oldest first.
        """
        kernels = tf.split(tf.convert_to_tensor(self.kernel), 3, axis=1)
        recurrent_kernels = tf.split(tf.convert_to_tensor(self.recurrent_kernel), 3, axis=1)
        bias, recurrent_bias = tf.unstack(tf.convert_to_tensor(self.bias), axis=0)
        update_bias, reset_bias, _ = tf.split(bias + recurrent_bias, 3, axis=0)
        candidate_bias = tf.split(bias, 3, axis=0)[2]
        recurrent_candidate_bias = tf.split(recurrent_bias, 3, axis=0)[2]
        update_kernel, reset_kernel = (
            tf.concat([kernels[gate], recurrent_kernels[gate]], axis=0) for gate in (0, 1)
        )  # [dim + units, units]
        # The state before the first position is 0: what multiplies it is left out.
        update = tf.sigmoid(affine(inputs[0], kernels[0], update_bias))
        reset = tf.sigmoid(affine(inputs[0], kernels[1], reset_bias))
        candidate = affine(inputs[0], kernels[2], candidate_bias)
        candidate = tf.tanh(candidate + reset * recurrent_candidate_bias)
        state = candidate - update * candidate  # [batch, units]
        states = [state]
        for position in inputs[1:]:
            pair = tf.concat([position, state], axis=1)  # [batch, dim + units]
            update = tf.sigmoid(affine(pair, update_kernel, update_bias))
            reset = tf.sigmoid(affine(pair, reset_kernel, reset_bias))
            recurrent = affine(state, recurrent_kernels[2], recurrent_candidate_bias)
            candidate = affine(position, kernels[2], candidate_bias)
            candidate = tf.tanh(candidate + reset * recurrent)
            state = candidate + update * (state - candidate)
            states.append(state)
        return states


class Product(NamedTuple):
    """The product of input and state with one kernel: what a gate is made of."""

    kernel: tf.Tensor
    """[dim + units, units]."""
    bias: tf.Tensor
    """[units]."""
    of_state: tf.Tensor
    """The kernel's part for the state: [units, units]."""
    of_inputs: list[tf.Tensor]
    """The inputs' products and the bias, where several candidates share the inputs: for each
    position [rows, units]. Else the first position's alone, which has no state before it."""


@register_block
class AUGRU(ConfiguredBlock):
    """GRU whose update gate is scaled by attention (DIEN, the interest evolving layer).

        [r, u] = sigmoid(Dense([x, h])),    c = tanh(Dense([x, r h]))
        u' = (1 - a) u,                     h' = u' h + (1 - u') c

    as the published implementation has it: a position without attention keeps a plain GRU's gate,
    one with full attention replaces the state. Gate biases start at 1, candidate biases at 0. Each
    gate has its own product: cutting one wide product into gates would cost more than it saves.
    A gate is (1 + tanh(x / 2)) / 2, because TensorFlow takes half as long for a tanh as for a
    sigmoid; kernels and attention are halved in its stead.

    >>> state = AUGRU(6)([tf.ones([2, 4])] * 5, tf.ones([2, 5]) / 5)
    >>> state.shape
    TensorShape([2, 6])

    Args:
        units: Size of the state.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = check_positive("units", units)

    def build(self, input_shape: Any) -> None:
        """Create the weights for positions of [rows, dim] each."""
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        rows = int(shape[-1]) + self.units
        self.gates_kernel = self.add_weight(
            "gates_kernel", [rows, 2 * self.units], initializer="glorot_uniform"
        )
        self.gates_bias = self.add_weight("gates_bias", [2 * self.units], initializer="ones")
        self.candidate_kernel = self.add_weight(
            "candidate_kernel", [rows, self.units], initializer="glorot_uniform"
        )
        self.candidate_bias = self.add_weight("candidate_bias", [self.units], initializer="zeros")
        super().build(input_shape)

    def call(
        self, inputs: list[tf.Tensor], attention: tf.Tensor, candidates: Size = 1
    ) -> tf.Tensor:
        """Return the state after the last position: [rows x candidates, units].

        Args:
            inputs: One [rows, dim] for each position, oldest first.
            attention: [rows x candidates, history], the weight of each position.
            candidates: How many rows of attention, one after the other, share one row of inputs.
        """
        reset, update, candidate = self._products(inputs, candidates)
        half_keep = tf.split(0.5 - 0.5 * tf.cast(attention, inputs[0].dtype), len(inputs), axis=1)
        # The state before the first position is 0: what multiplies it is left out.
        new = repeat_per_candidate(tf.tanh(candidate.of_inputs[0]), candidates)
        gate = 1.0 + repeat_per_candidate(tf.tanh(update.of_inputs[0]), candidates)
        state = new - half_keep[0] * gate * new  # [rows x candidates, units]
        for t in range(1, len(inputs)):
            given = t, inputs[t], candidates
            of_reset, of_update = (_multiply(part, state, *given) for part in (reset, update))
            of_new = _multiply(candidate, _reset(state, *of_reset), *given)
            state = _evolved(state, half_keep[t], *of_new, *of_update)
        return state

    def _products(self, inputs: list[tf.Tensor], candidates: Size) -> list[Product]:
        dim = inputs[0].shape[-1]
        kernels = tf.split(0.5 * tf.convert_to_tensor(self.gates_kernel), 2, axis=1)
        biases = tf.split(0.5 * tf.convert_to_tensor(self.gates_bias), 2, axis=0)
        of_input, of_state = tf.split(self.candidate_kernel, [dim, self.units])
        kernels.append(tf.concat([of_input, 0.5 * of_state], axis=0))
        biases.append(tf.convert_to_tensor(self.candidate_bias))
        shared = inputs[:1] if is_one(candidates) else inputs
        products = []
        for kernel, bias in zip(kernels, biases):  # noqa: B905  autograph has no strict
            of_input, of_state = tf.split(kernel, [dim, self.units])
            of_inputs = affine(tf.concat(shared, axis=0), of_input, bias)
            products.append(Product(kernel, bias, of_state, tf.split(of_inputs, len(shared))))
        return products


def _multiply(
    product: Product, state: tf.Tensor, t: int, position: tf.Tensor, candidates: Size
) -> list[tf.Tensor]:
    """Return what a product is the sum of: [rows x candidates, units], and [rows, units] or none.

    What the input adds for all candidates of a row is added where the product is used.
    """
    if is_one(candidates):
        both = tf.concat([position, state], axis=1)  # [rows, dim + units]
        return [affine(both, product.kernel, product.bias)]
    if position.shape[0] == 1:  # of one user, what the input adds is a bias
        return [affine(state, product.of_state, product.of_inputs[t][0])]
    return [tf.matmul(state, product.of_state), product.of_inputs[t]]


def _sum(parts: tuple[tf.Tensor, ...]) -> tf.Tensor:
    """Add what :func:`_multiply` gives, without a copy of a row's for each candidate."""
    if len(parts) == 1:
        return parts[0]
    of_samples, of_rows = parts
    rows, units = sizes(of_rows)
    together = tf.reshape(of_samples, [rows, -1, units]) + tf.expand_dims(of_rows, 1)
    return tf.reshape(together, [-1, units])


@fused
def _reset(state: tf.Tensor, *of_reset: tf.Tensor) -> tf.Tensor:
    """Multiply the states with twice the reset gate."""
    return (1.0 + tf.tanh(_sum(of_reset))) * state


@fused
def _evolved(state: tf.Tensor, half_keep: tf.Tensor, *products: tf.Tensor) -> tf.Tensor:
    """Return the next state, of the products of the new one and of the update gate."""
    half = len(products) // 2
    new, update = tf.tanh(_sum(products[:half])), 1.0 + tf.tanh(_sum(products[half:]))
    return new + half_keep * update * (state - new)


class Evolution(NamedTuple):
    """Outputs of interest evolution."""

    final_state: tf.Tensor
    """The interest in each candidate at the end: [users, candidates, units]."""
    states: list[tf.Tensor]
    """The state after each position, for the auxiliary network: short x [users, windows, units]."""


@register_block
class InterestEvolution(ConfiguredBlock):
    """GRU, attention of a candidate to its states, AUGRU (DIEN, arXiv 1809.03672).

        h_1..h_T = GRU(e_1..e_T)
        a = softmax(ActivationUnit(PReLU(Dense(candidate)), h))    over the real positions
        final state = AUGRU(h, a)

    The GRU starts from zero at every window. Candidates that see the same have one window, over
    which it runs once, and all that follows of the states alone is computed once too. Or it runs
    once over a span that has all windows of a user in it: a window's states then remember what
    was before it in the span.

    >>> evolution = InterestEvolution(units=6)
    >>> history, mask = tf.ones([2, 1, 5, 4]), tf.ones([2, 1, 5], tf.bool)
    >>> evolution(tf.ones([2, 3, 4]), history, mask).final_state.shape
    TensorShape([2, 3, 6])

    Args:
        units: Size of the states; the published models take 6 x embedding_dim.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = check_positive("units", units)
        policy = self._dtype_policy
        self.gru = InterestExtractor(units, dtype=policy, name="gru")
        self.item_dense = tf.keras.layers.Dense(units, dtype=policy, name="item_dense")
        self.item_prelu = PReLU(dtype=policy, name="item_prelu")
        self.activation_unit = ActivationUnit(dtype=policy, name="activation_unit")
        self.augru = AUGRU(units, dtype=policy, name="augru")

    def build(self, input_shape: Any) -> None:
        """Create the weights for candidates of [users, candidates, dim], of the items' vectors."""
        dim = int(input_shape[-1])
        self.gru.build(tf.TensorShape([None, dim]))
        self.item_dense.build(tf.TensorShape([None, dim]))
        self.item_prelu.build(tf.TensorShape([None, self.units]))
        self.activation_unit.build(tf.TensorShape([None, self.units]))
        self.augru.build(tf.TensorShape([None, self.units]))
        super().build(input_shape)

    def call(
        self,
        candidates: tf.Tensor,
        short_history: tf.Tensor,
        short_mask: tf.Tensor,
        in_span: tf.Tensor | None = None,
    ) -> Evolution:
        """Follow the interest through the short history.

        Args:
            candidates: [users, candidates, dim].
            short_history: [users, windows, short, dim], with a window for each candidate, or one
                for several that follow each other, or for all of a user; zeros at padded positions.
            short_mask: [users, windows, short], bool; True where a position is real.
            in_span: [users, windows, short], for one pass over a span: where each window
                is in it. History and mask are then those of the span, [users, 1, span, ...],
                and so are the states that are returned.
        """
        users, count, _ = sizes(candidates)
        # Keras casts a layer's first input only.
        short_history = as_rows(tf.cast(short_history, self.compute_dtype))
        positions = tf.unstack(short_history, axis=1)  # short x [users x windows, dim]
        states = self.gru(positions)  # short x [users x windows, units]
        shape = [users, sizes(short_mask)[1], self.units]
        whole = [tf.reshape(state, shape) for state in states]
        if in_span is not None:
            states = self._of_windows(states, in_span)
            short_mask = gather_or_zero(short_mask[:, 0], in_span)
        windows, sharing = sizes(short_mask)[1], sharing_of(candidates, short_mask)
        item = self.item_prelu(self.item_dense(as_rows(candidates)))  # [samples, units]
        scores = self._scores(item, states, windows, sharing)
        mask = repeat_per_candidate(as_rows(short_mask), sharing)
        attention = masked_softmax(scores, mask)  # [samples, short]
        final_state = self.augru(states, attention, sharing)
        final_state = tf.reshape(final_state, [users, count, self.units])
        return Evolution(final_state, whole)

    def _of_windows(self, states: list[tf.Tensor], in_span: tf.Tensor) -> list[tf.Tensor]:
        """Return the states of each window: short x [users x windows, units]."""
        users, windows, short = sizes(in_span)
        # A product, whose gradient is one too: that of a gather adds up row by row.
        chosen = tf.one_hot(in_span, len(states), dtype=self.compute_dtype)
        chosen = tf.reshape(chosen, [users, windows * short, len(states)])
        found = tf.matmul(chosen, tf.stack(states, axis=1))  # [users, windows x short, units]
        rows = tf.reshape(found, [users * windows, short, self.units])
        of_windows: list[tf.Tensor] = tf.unstack(rows, axis=1)
        return of_windows

    def _scores(
        self, item: tf.Tensor, states: list[tf.Tensor], windows: Size, sharing: Size
    ) -> tf.Tensor:
        """Return the scores of each candidate: [samples, short]."""
        if not is_one(windows):
            return self.activation_unit.score_each(item, states, sharing)
        item = tf.reshape(item, [sizes(states[0])[0], sharing, self.units])
        return as_rows(self.activation_unit(item, tf.stack(states, axis=1)))


class AuxiliaryLogits(NamedTuple):
    """Logits of the auxiliary network for each next position; each [rows, short - 1]."""

    click: tf.Tensor
    """Logits of the items that were clicked next, float32."""
    noclick: tf.Tensor
    """Logits of the items that were not, float32."""
    mask: tf.Tensor
    """Where the next position is real, bool."""


@fused
def _sigmoid_of_sum(of_state: tf.Tensor, of_item: tf.Tensor) -> tf.Tensor:
    """Return the first hidden layer, of the parts that it is the sum of."""
    return tf.sigmoid(of_state + of_item)


@register_block
class AuxiliaryNetwork(ConfiguredBlock):
    """Sigmoid MLP on [h(1..T-1), e(2..T)], for the real and the negative history.

    DIEN (https://arxiv.org/abs/1809.03672), interest extractor layer. The first kernel is
    multiplied in two parts: the states' serves both histories. The logits are float32 under every
    policy.

    >>> network = AuxiliaryNetwork(item_dim=4)
    >>> history, mask = tf.ones([2, 5, 4]), tf.ones([2, 5], tf.bool)
    >>> network([tf.ones([2, 6])] * 5, history, -history, mask).click.shape
    TensorShape([2, 4])

    Args:
        item_dim: Length of the item vectors.
        hidden_dims: Sizes of the hidden layers.
        dropout_rate: Share of the last hidden layer dropped in training; None for off.
    """

    def __init__(
        self,
        item_dim: int,
        hidden_dims: tuple[int, ...] = (100, 50),
        dropout_rate: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.item_dim = check_positive("item_dim", item_dim)
        self.hidden_dims = check_dims("hidden_dims", hidden_dims, at_least=1)
        self.dropout_rate = check_rate("dropout_rate", dropout_rate)
        policy = self._dtype_policy
        self.dense = dense_layers(self.hidden_dims, "sigmoid", policy)
        last = f"dense_{len(self.hidden_dims)}"
        self.dense.append(tf.keras.layers.Dense(1, dtype=policy.variable_dtype, name=last))
        self.dropout = None if dropout_rate is None else tf.keras.layers.Dropout(dropout_rate)

    def build(self, input_shape: Any) -> None:
        """Create the weights for states of [rows, units] each."""
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        build_in_turn(self.dense, int(shape[-1]) + self.item_dim)
        super().build(input_shape)

    def call(
        self,
        states: list[tf.Tensor],
        history: tf.Tensor,
        negative_history: tf.Tensor,
        history_mask: tf.Tensor,
        training: bool = False,
    ) -> AuxiliaryLogits:
        """Score what came next, and what did not, after each state.

        Args:
            states: One [rows, units] for each position of the short history.
            history: [rows, short, dim], item vectors.
            negative_history: [rows, short, dim].
            history_mask: [rows, short], bool.
            training: Whether dropout applies, to each of the two histories by itself.
        """
        batch = tf.shape(history)[0]
        if len(states) < 2:  # no position has a next one
            nothing = tf.zeros([batch, 0], tf.float32)
            return AuxiliaryLogits(nothing, nothing, history_mask[:, 1:])
        first, *others, last = self.dense
        units = states[0].shape[-1]
        of_state, of_item = tf.split(tf.convert_to_tensor(first.kernel), [units, self.item_dim])
        # Time first from here on, as the recurrence made the states: [(short - 1) x rows, ...].
        state_part = affine(tf.concat(states[:-1], axis=0), of_state, first.bias)
        logits = []
        for items in (history, negative_history):
            # Keras casts a layer's first input only.
            following = tf.unstack(tf.cast(items, self.compute_dtype), axis=1)[1:]
            item_part = tf.matmul(tf.concat(following, axis=0), of_item)
            hidden = _sigmoid_of_sum(state_part, item_part)
            for dense in others:
                hidden = dense(hidden)
            if self.dropout is not None:
                hidden = self.dropout(hidden, training=training)
            scores = tf.reshape(last(hidden), [len(states) - 1, batch])
            logits.append(tf.transpose(scores))  # [rows, short - 1]
        return AuxiliaryLogits(logits[0], logits[1], history_mask[:, 1:])
