"""Layers of the networks here: a fused product, PReLU, and both together."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ...parallel.steps.fused import fused
from .checks import check_dims, check_rate
from .serialization import ConfiguredBlock, register_block

TENSOR_CORE = 8
"""What the sides of a matrix are multiples of where tensor cores multiply it at full speed."""


def affine(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Return ``inputs kernel + bias``; what follows, such as a sigmoid, is fused into it.

    >>> affine(tf.ones([1, 2]), tf.ones([2, 1]), tf.constant([3.0])).numpy().tolist()
    [[5.0]]
    """
    return tf.nn.bias_add(tf.matmul(inputs, kernel), bias)


@fused
def _sloped(inputs: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    positive = tf.nn.relu(inputs)
    return positive + alpha * (inputs - positive)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class PReLU(tf.keras.layers.PReLU):
    """``x`` where it is above 0, a trained multiple of it elsewhere; the slope starts at 0.1.

    The slope is the published one. What is not above 0 is ``x - relu(x)``: Keras negates twice,
    which no processor instruction does for many values at once.

    >>> PReLU()(tf.constant([[2.0, -10.0]])).numpy().tolist()
    [[2.0, -1.0]]
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(alpha_initializer=tf.keras.initializers.Constant(0.1), **kwargs)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return a tensor like ``inputs``."""
        return _sloped(inputs, tf.convert_to_tensor(self.alpha))

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the layer."""
        config: dict[str, Any] = super().get_config()
        config.pop("alpha_initializer")
        return config


@register_block
class HiddenLayers(ConfiguredBlock):
    """Dense + PReLU per hidden size, then optional dropout: a classifier without its logit.

    ``mm.MLPBlock`` has no slope of 0.1 and drops after every layer.

    >>> HiddenLayers((200, 80))(tf.ones([2, 16])).shape
    TensorShape([2, 80])

    Args:
        hidden_dims: Sizes of the hidden layers; none gives what came in.
        dropout_rate: Share of the last hidden layer dropped in training; None for off.
    """

    def __init__(
        self,
        hidden_dims: tuple[int, ...] = (200, 80),
        dropout_rate: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dims = check_dims("hidden_dims", hidden_dims)
        self.dropout_rate = check_rate("dropout_rate", dropout_rate)
        self.dense, self.prelu = self.make_layers()
        self.dropout = None if dropout_rate is None else tf.keras.layers.Dropout(dropout_rate)

    def make_layers(self) -> tuple[list[tf.keras.layers.Layer], list[tf.keras.layers.Layer]]:
        """Make a product for each size, and what makes its activation."""
        policy = self._dtype_policy
        dense = dense_layers(self.hidden_dims, None, policy)
        prelu = [PReLU(dtype=policy, name=f"prelu_{index}") for index in range(len(dense))]
        return dense, prelu

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, dim]."""
        build_in_turn(self.dense, int(input_shape[-1]))
        for dense, prelu in zip(self.dense, self.prelu, strict=False):
            prelu.build(tf.TensorShape([None, dense.units]))
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the last hidden layer: [batch, dim] -> [batch, last of hidden_dims]."""
        hidden = inputs
        for index, prelu in enumerate(self.prelu):
            hidden = prelu(self.dense[index](hidden))
        if self.dropout is not None:
            hidden = self.dropout(hidden, training=training)
        return hidden

    def output_dim(self, input_dim: int) -> int:
        """Return the size of what comes out for inputs of this size."""
        return self.hidden_dims[-1] if self.hidden_dims else input_dim

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, last of hidden_dims]."""
        return tf.TensorShape([input_shape[0], self.output_dim(input_shape[-1])])


@register_block
class ClassifierMLP(HiddenLayers):
    """Hidden layers with PReLU, optional dropout, then one linear unit in float32.

    >>> ClassifierMLP((200, 80))(tf.ones([2, 16])).shape
    TensorShape([2, 1])

    Args:
        hidden_dims: Sizes of the hidden layers.
        dropout_rate: Share of the last hidden layer dropped in training; None for off.
    """

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, dim]."""
        super().build(input_shape)
        # In mixed precision the logit stays in float32: losses come from float32 logits.
        dtype = str(self._dtype_policy.variable_dtype)
        self.logit = tf.keras.layers.Dense(1, dtype=dtype, name="logit")
        width = super().output_dim(int(input_shape[-1]))
        self.logit.build(tf.TensorShape([None, width]))

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the logits: [batch, dim] -> [batch, 1], float32."""
        return self.logit(super().call(inputs, training=training))

    def output_dim(self, input_dim: int) -> int:
        """Return 1: the logit."""
        return 1


@register_block
class ReLULayers(HiddenLayers):
    """Dense + ReLU for each size: the networks of DLRM.

    Kernels start normal after Glorot, biases normal with variance 1 / units, as published. The
    inputs are padded with zeros to a multiple of 8, for tensor cores, as is the first kernel while
    it multiplies: the variable has a row for each input and no more. ``mm.MLPBlock`` does neither.

    >>> ReLULayers((512, 256, 128))(tf.ones([2, 13])).shape
    TensorShape([2, 128])

    Args:
        hidden_dims: Sizes of the layers; none gives what came in.
    """

    def make_layers(self) -> tuple[list[tf.keras.layers.Layer], list[tf.keras.layers.Layer]]:
        """Make the layers, whose activation is their own."""
        policy, sizes = self._dtype_policy, enumerate(self.hidden_dims)
        return [published_dense(n, "relu", dtype=policy, name=f"dense_{i}") for i, n in sizes], []

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the last layer: [batch, dim] -> [batch, last of hidden_dims]."""
        if not self.dense:
            return inputs
        first, others = self.dense[0], self.dense[1:]
        lacking = -int(inputs.shape[-1]) % TENSOR_CORE
        kernel = tf.pad(first.kernel, [[0, lacking], [0, 0]])
        hidden = tf.nn.relu(affine(tf.pad(inputs, [[0, 0], [0, lacking]]), kernel, first.bias))
        for dense in others:
            hidden = dense(hidden)
        return hidden


def dense_layers(
    dims: tuple[int, ...], activation: str | None, policy: Any
) -> list[tf.keras.layers.Layer]:
    """Make a layer of each size, named by its index."""
    return [
        tf.keras.layers.Dense(units, activation=activation, dtype=policy, name=f"dense_{index}")
        for index, units in enumerate(dims)
    ]


def build_in_turn(layers: list[tf.keras.layers.Layer], width: int) -> None:
    """Build layers that follow each other, for inputs of [..., width]."""
    for dense in layers:
        dense.build(tf.TensorShape([None, width]))
        width = dense.units


def published_dense(units: int, activation: str | None, **kwargs: Any) -> tf.keras.layers.Dense:
    """Make a layer that starts as DLRM's do."""
    return tf.keras.layers.Dense(
        units,
        activation=activation,
        kernel_initializer="glorot_normal",
        bias_initializer=tf.keras.initializers.RandomNormal(stddev=units**-0.5),
        **kwargs,
    )
