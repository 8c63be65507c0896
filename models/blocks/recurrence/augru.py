"""The second recurrence of DIEN: interest evolution, a GRU with an attentional update gate."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import check_positive
from ..heads.hidden_layers import affine
from ..serialization import register_block
from ..shapes import Size, beside_candidates, is_one


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
class AUGRU(Block):
    """GRU whose update gate is scaled by attention (DIEN, the interest evolving layer).

        [r, u] = sigmoid(Dense([x, h])),    c = tanh(Dense([x, r h]))
        u' = (1 - a) u,                     h' = u' h + (1 - u') c

    as the published implementation has it: a position without attention keeps a plain GRU's gate,
    one with full attention replaces the state. Gate biases start at 1, candidate biases at 0. Each
    gate has its own product, with which its sigmoid is fused: cutting one wide product into gates
    would cost more than it saves.

    >>> state = AUGRU(6)([tf.ones([2, 4])] * 5, tf.ones([2, 5]) / 5)
    >>> state.shape
    TensorShape([2, 6])

    Args:
        units: Size of the state.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        """Check the option."""
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
        """Return the state after the last position.

        Args:
            inputs: One [rows, dim] for each position, oldest first.
            attention: [rows x candidates, history], the weight of each position.
            candidates: How many rows of attention, one after the other, share one row of inputs.

        Returns:
            [rows x candidates, units].
        """
        reset, update, candidate = self._products(inputs, candidates)
        keep = tf.split(1.0 - tf.cast(attention, inputs[0].dtype), len(inputs), axis=1)
        # The state before the first position is 0: what multiplies it is left out.
        new = beside_candidates(tf.tanh(candidate.of_inputs[0]), candidates)
        kept = keep[0] * beside_candidates(tf.sigmoid(update.of_inputs[0]), candidates)
        state = new - kept * new  # [rows x candidates, units]
        for t in range(1, len(inputs)):
            given = t, inputs[t], candidates
            gates = _multiply([reset, update], state, *given)
            (new,) = _multiply([candidate], tf.sigmoid(gates[0]) * state, *given)
            new = tf.tanh(new)
            state = new + (keep[t] * tf.sigmoid(gates[1])) * (state - new)
        return state

    def _products(self, inputs: list[tf.Tensor], candidates: Size) -> list[Product]:
        kernels = tf.split(tf.convert_to_tensor(self.gates_kernel), 2, axis=1)
        biases = tf.split(tf.convert_to_tensor(self.gates_bias), 2, axis=0)
        kernels.append(tf.convert_to_tensor(self.candidate_kernel))
        biases.append(tf.convert_to_tensor(self.candidate_bias))
        shared = inputs[:1] if is_one(candidates) else inputs
        products = []
        for kernel, bias in zip(kernels, biases):  # noqa: B905  autograph has no strict
            of_input, of_state = tf.split(kernel, [inputs[0].shape[-1], self.units])
            of_inputs = affine(tf.concat(shared, axis=0), of_input, bias)
            products.append(Product(kernel, bias, of_state, tf.split(of_inputs, len(shared))))
        return products

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "units": self.units}


def _multiply(
    products: list[Product], state: tf.Tensor, t: int, position: tf.Tensor, candidates: Size
) -> list[tf.Tensor]:
    """Return the products of an input and the states: [rows x candidates, units] each."""
    if is_one(candidates):
        both = tf.concat([position, state], axis=1)  # [rows, dim + units]
        return [affine(both, product.kernel, product.bias) for product in products]
    if position.shape[0] == 1:  # of one user, what the input adds is a bias
        return [affine(state, product.of_state, product.of_inputs[t][0]) for product in products]
    return [
        tf.matmul(state, product.of_state) + beside_candidates(product.of_inputs[t], candidates)
        for product in products
    ]
