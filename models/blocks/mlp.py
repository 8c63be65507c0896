"""What the networks here are made of: a fused product, PReLU, and layers of both."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from .checks import check_dims, check_rate
from .serialization import register_block


def affine(inputs: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Return ``inputs kernel + bias``; what follows, such as a sigmoid, is fused into it.

    >>> affine(tf.ones([1, 2]), tf.ones([2, 1]), tf.constant([3.0])).numpy().tolist()
    [[5.0]]

    Args:
        inputs: [batch, dim].
        kernel: [dim, units].
        bias: [units].

    Returns:
        [batch, units].
    """
    return tf.nn.bias_add(tf.matmul(inputs, kernel), bias)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class PReLU(tf.keras.layers.PReLU):
    """``x`` where it is above 0, a trained multiple of it elsewhere; the slope starts at 0.1.

    The slope is the published one. What is not above 0 is ``x - relu(x)``: Keras negates twice,
    which no processor instruction does for many values at once.

    >>> PReLU()(tf.constant([[2.0, -10.0]])).numpy().tolist()
    [[2.0, -1.0]]
    """

    def __init__(self, **kwargs: Any) -> None:
        """Start the slope at 0.1."""
        super().__init__(alpha_initializer=tf.keras.initializers.Constant(0.1), **kwargs)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return a tensor like ``inputs``."""
        positive = tf.nn.relu(inputs)
        return positive + self.alpha * (inputs - positive)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the layer."""
        config: dict[str, Any] = super().get_config()
        config.pop("alpha_initializer")
        return config


@register_block
class HiddenLayers(Block):
    """Dense + PReLU per hidden size, then optional dropout: a classifier without its logit.

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
        """Check the options and make the layers."""
        super().__init__(**kwargs)
        self.hidden_dims = check_dims("hidden_dims", hidden_dims)
        self.dropout_rate = check_rate("dropout_rate", dropout_rate)
        policy = self._dtype_policy
        self.dense = [
            tf.keras.layers.Dense(units, dtype=policy, name=f"dense_{place}")
            for place, units in enumerate(self.hidden_dims)
        ]
        self.prelu = [
            PReLU(dtype=policy, name=f"prelu_{place}") for place in range(len(self.hidden_dims))
        ]
        self.dropout = None if dropout_rate is None else tf.keras.layers.Dropout(dropout_rate)

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, dim]."""
        shape = tf.TensorShape([None, int(input_shape[-1])])
        for dense, prelu in zip(self.dense, self.prelu, strict=True):
            dense.build(shape)
            shape = tf.TensorShape([None, dense.units])
            prelu.build(shape)
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the last hidden layer.

        Args:
            inputs: [batch, dim].
            training: Whether dropout applies.

        Returns:
            [batch, last of hidden_dims].
        """
        hidden = inputs
        for place, prelu in enumerate(self.prelu):
            hidden = prelu(self.dense[place](hidden))
        if self.dropout is not None:
            hidden = self.dropout(hidden, training=training)
        return hidden

    def output_dim(self, input_dim: int) -> int:
        """Return the size of what comes out for inputs of this size."""
        return self.hidden_dims[-1] if self.hidden_dims else input_dim

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, last of hidden_dims]."""
        return tf.TensorShape([input_shape[0], self.output_dim(input_shape[-1])])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {
            **super().get_config(),
            "hidden_dims": list(self.hidden_dims),
            "dropout_rate": self.dropout_rate,
        }


@register_block
class ClassifierMLP(Block):
    """Hidden layers with PReLU, optional dropout, then one linear unit in float32.

    >>> logits = ClassifierMLP((200, 80))(tf.ones([2, 16]))
    >>> logits.shape
    TensorShape([2, 1])

    Args:
        hidden_dims: Sizes of the hidden layers.
        dropout_rate: Share of the last hidden layer dropped in training; None for off.
    """

    def __init__(
        self,
        hidden_dims: tuple[int, ...] = (200, 80),
        dropout_rate: float | None = None,
        **kwargs: Any,
    ) -> None:
        """Make the layers; the hidden ones check the options."""
        super().__init__(**kwargs)
        policy = self._dtype_policy
        self.hidden = HiddenLayers(hidden_dims, dropout_rate, dtype=policy, name="hidden")
        # In mixed precision the logit stays in float32: losses come from float32 logits.
        self.logit = tf.keras.layers.Dense(1, dtype=str(policy.variable_dtype), name="logit")

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, dim]."""
        self.hidden.build(input_shape)
        self.logit.build(tf.TensorShape([None, self.hidden.output_dim(int(input_shape[-1]))]))
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the logits.

        Args:
            inputs: [batch, dim].
            training: Whether dropout applies.

        Returns:
            [batch, 1], float32.
        """
        return self.logit(self.hidden(inputs, training=training))

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, 1]."""
        return tf.TensorShape([input_shape[0], 1])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {
            **super().get_config(),
            "hidden_dims": list(self.hidden.hidden_dims),
            "dropout_rate": self.hidden.dropout_rate,
        }


TENSOR_CORE = 8
"""What the sides of a matrix are multiples of where tensor cores multiply it at full speed."""


@register_block
class ReLULayers(Block):
    """Dense + ReLU for each size.

    Kernels start normal after Glorot, biases normal with variance 1 / units, as published. The
    inputs are padded with zeros to a multiple of 8, as is the first kernel while it multiplies:
    the variable has a row for each input and no more.

    >>> ReLULayers((512, 256, 128))(tf.ones([2, 13])).shape
    TensorShape([2, 128])

    Args:
        dims: Sizes of the layers; none gives what came in.
    """

    def __init__(self, dims: tuple[int, ...] = (512, 256, 128), **kwargs: Any) -> None:
        """Check the sizes and make the layers."""
        super().__init__(**kwargs)
        self.dims = check_dims("dims", dims)
        self.dense = [
            published_dense(units, "relu", dtype=self._dtype_policy, name=f"dense_{place}")
            for place, units in enumerate(self.dims)
        ]

    def build(self, input_shape: Any) -> None:
        """Create the weights for inputs of [batch, dim]."""
        dim = int(input_shape[-1])
        for dense in self.dense:
            dense.build(tf.TensorShape([None, dim]))
            dim = dense.units
        super().build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the last layer.

        Args:
            inputs: [batch, dim].

        Returns:
            [batch, last of dims].
        """
        if not self.dense:
            return inputs
        first, others = self.dense[0], self.dense[1:]
        lacking = -int(inputs.shape[-1]) % TENSOR_CORE
        kernel = tf.pad(first.kernel, [[0, lacking], [0, 0]])
        hidden = tf.nn.relu(affine(tf.pad(inputs, [[0, 0], [0, lacking]]), kernel, first.bias))
        for dense in others:
            hidden = dense(hidden)
        return hidden

    def output_dim(self, input_dim: int) -> int:
        """Return the size of what comes out for inputs of this size."""
        return self.dims[-1] if self.dims else input_dim

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """[batch, dim] -> [batch, last of dims]."""
        return tf.TensorShape([input_shape[0], self.output_dim(input_shape[-1])])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "dims": list(self.dims)}


def published_dense(units: int, activation: str | None, **kwargs: Any) -> tf.keras.layers.Dense:
    """Make a layer that starts as DLRM's do."""
    return tf.keras.layers.Dense(
        units,
        activation=activation,
        kernel_initializer="glorot_normal",
        bias_initializer=tf.keras.initializers.RandomNormal(stddev=units**-0.5),
        **kwargs,
    )
