"""DIN, DIEN, SIM, ETA, SDIM, TWIN, STCA, DLRM and DCNv2 as Merlin models.

TensorFlow is loaded with the first name that needs it.

    from merlin_sim.models import SIMModel, build_model

    model = SIMModel.from_schema(schema, embedding_dim=16, top_k=50)      # or DINModel, DIENModel
    model = SIMModel.from_dataset(DatasetDirectory.open("books"), embedding_dim=16)
    model = build_model("sim", schema, embedding_dim=16)                  # the type by name

``options_type("sim")`` is the frozen dataclass of a model's options (defaults as published, an
unknown name or a wrong value raises ``OptionError``, a ``MerlinSimError``). All weights exist as
soon as a model does. As a ``merlin.models.tf.Model`` it has ``compile``, ``fit``, ``evaluate``,
``predict`` (click probabilities), ``save`` and ``load``. For a loop of one's own:

    losses, logits = model.compute_step(columns, labels, sample_weight=None, training=True)
    losses.total_loss, losses.classification_loss, losses.dien_aux_loss   # float32 scalars
    logits = model.forward(columns).logits                                # [samples, 1], float32

The models are Merlin blocks with a logit, and the blocks chain as Merlin's do:

    mm.Model(SIMBlock.from_schema(schema, top_k=50), mm.BinaryOutput("label"))

``columns`` is a dictionary of tensors by column name; histories may be padded ([batch, length],
newest last) or ragged as Merlin's loader gives them. Several candidates of one user,
[users, candidates], share its history, and ``history_end`` says what each sees of it. ``forward``
reads no negative history and computes nothing of the objective.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ..foundation.stub import import_name, imports_of

_MODULE_OF = imports_of(__file__)

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    return import_name(name, _MODULE_OF, __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if sys.modules.get("tensorflow") is not None:
    # Where TensorFlow is loaded already, importing this package registers its classes, by which
    # Keras and Merlin load a saved model.
    importlib.import_module(".registry", __name__)
