"""What the options of every model share: made from names and values, and written as such."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from .blocks.checks import OptionError

AnyOptions = TypeVar("AnyOptions", bound="CheckedOptions")


@dataclass(frozen=True)
class CheckedOptions:
    """Options of a model; a subclass lists them as fields and checks them when it is made."""

    @classmethod
    def parse(cls: type[AnyOptions], options: dict[str, Any]) -> AnyOptions:
        """Build the options from names and values; a name that is not one is an error."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise OptionError(
                f"Unknown option{'s' if len(unknown) > 1 else ''}: {', '.join(unknown)}. "
                f"{cls.__name__} has: {', '.join(known)}."
            )
        return cls(**options)

    def to_dict(self) -> dict[str, Any]:
        """Return names and values as JSON can hold them."""
        values = asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
