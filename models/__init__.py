"""DIN, DIEN and SIM as Merlin models. Importing this package imports TensorFlow.

    from merlin_sim.models import SIMModel, build_model

    model = SIMModel.from_schema(schema, embedding_dim=16, top_k=50)      # or DINModel, DIENModel
    model = SIMModel.from_dataset(Dataset.open("books"), embedding_dim=16)
    model = build_model("sim", schema, embedding_dim=16)                  # the type by name

``options_type("sim")`` is the frozen dataclass of a model's options (defaults as published, an
unknown name or a wrong value raises ``OptionError``, a ``MerlinSimError``). All weights exist as
soon as a model does. As a ``merlin.models.tf.Model`` it has ``compile``, ``fit``, ``evaluate``,
``predict`` (click probabilities), ``save`` and ``load``. For a loop of one's own:

    losses, logits = model.compute_step(columns, labels, sample_weight=None, training=True)
    losses.total_loss, losses.classification_loss, losses.dien_aux_loss   # float32 scalars
    logits = model.forward(columns).logits                                # [batch, 1], float32

``columns`` is a dictionary of tensors by column name; histories may be padded ([batch, length],
newest last) or ragged as Merlin's loader gives them. ``forward`` reads no negative history and
computes nothing of the objective.
"""

from .blocks.checks import OptionError
from .dien import DIENModel
from .din import DINModel
from .interest_model import InterestModel
from .objective import Outputs, StepLosses
from .options import DIENOptions, DINOptions, ModelOptions, SIMOptions
from .registry import MODELS, build_model, options_type
from .sim import SIMModel

__all__ = [
    "MODELS",
    "DIENModel",
    "DIENOptions",
    "DINModel",
    "DINOptions",
    "InterestModel",
    "ModelOptions",
    "OptionError",
    "Outputs",
    "SIMModel",
    "SIMOptions",
    "StepLosses",
    "build_model",
    "options_type",
]
