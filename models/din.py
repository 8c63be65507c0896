"""Deep Interest Network (https://arxiv.org/abs/1706.06978)."""

from __future__ import annotations

import tensorflow as tf

from .blocks.classifier_mlp import ClassifierMLP
from .blocks.din_attention import DINAttention
from .body import Body
from .channels import Features
from .interest_model import InterestModel
from .objective import Outputs
from .options import DINOptions


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DINBody(Body[DINOptions]):
    """Attention of the target over the whole history, then the classifier.

    logit = MLP([target, DINAttention(target, history), user])
    """

    options_type = DINOptions

    def make_blocks(self) -> None:
        """Make attention and classifier."""
        options, policy = self.options, self._dtype_policy
        self.attention = DINAttention(options.attention, dtype=policy, name="attention")
        self.classifier = ClassifierMLP(
            options.stage_two_mlp_dims, options.dropout_rate, dtype=policy, name="classifier"
        )

    def build_blocks(self) -> None:
        """Create their weights."""
        self.attention.build(tf.TensorShape([None, self.item_dim]))
        self.classifier.build(tf.TensorShape([None, 2 * self.item_dim + self.user_dim]))

    def call(
        self, features: Features, training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return the logits of a batch; DIN's objective needs nothing else."""
        ids = {**features.user, **features.target_item, **features.positive}
        vectors = self.embedding(ids, with_gradient=training or with_objective)
        target_item, user = self.join_item_and_user(vectors)  # [batch, dim]
        history = self.join([vectors[n] for n in self.channels.positive])  # [batch, history, dim]
        interest = self.attention(target_item, history, features.mask)  # [batch, dim]
        parts = [target_item, interest, *user]
        return Outputs(self.classifier(tf.concat(parts, axis=-1), training=training))


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class DINModel(InterestModel):
    """DIN as a Merlin model; see :class:`~merlin_sim.models.interest_model.InterestModel`."""

    body_type = DINBody
