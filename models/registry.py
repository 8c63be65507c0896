"""The models by name: how training and serving build one without knowing it."""

from __future__ import annotations

from typing import Any

from merlin.schema import Schema

from .blocks.checks import check_choice
from .dien import DIENModel
from .din import DINModel
from .interest_model import InterestModel
from .options import ModelOptions
from .sim import SIMModel

MODELS: dict[str, type[InterestModel]] = {"din": DINModel, "dien": DIENModel, "sim": SIMModel}
"""Model type -> class."""


def build_model(model_type: str, schema: Schema, **options: Any) -> InterestModel:
    """Build a model for data of this schema.

    Args:
        model_type: ``"din"``, ``"dien"`` or ``"sim"``.
        schema: The Merlin schema of the dataset, label included.
        **options: Options of the model by name; :func:`options_type` lists them.
    """
    check_choice("model_type", model_type, list(MODELS))
    return MODELS[model_type].from_schema(schema, **options)


def options_type(model_type: str) -> type[ModelOptions]:
    """Return the class of a model's options; its dataclass fields are the options.

    >>> "top_k" in options_type("sim").__dataclass_fields__
    True
    """
    check_choice("model_type", model_type, list(MODELS))
    options: type[ModelOptions] = MODELS[model_type].body_type.options_type
    return options
