"""What can be set of DLRM and DCNv2, with the published defaults, checked at construction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from ..blocks.checks import OptionError, check_dims, check_positive
from ..checked_options import CheckedOptions

AnyOptions = TypeVar("AnyOptions", bound="RankingOptions")


@dataclass(frozen=True)
class RankingOptions(CheckedOptions):
    """What both models have."""

    embedding_dim: int = 128
    """Length of the vector of one feature."""

    bottom_mlp_dims: tuple[int, ...] = (512, 256, 128)
    """Sizes of the layers over the numerical features."""

    top_mlp_dims: tuple[int, ...] = (1024, 1024, 512, 256, 1)
    """Sizes of the layers over everything; the last is the logit."""

    def __post_init__(self) -> None:
        """Check every option."""
        check_positive("embedding_dim", self.embedding_dim)
        for name in ("bottom_mlp_dims", "top_mlp_dims"):
            dims = check_dims(name, getattr(self, name), at_least=1)
            object.__setattr__(self, name, dims)
        if self.top_mlp_dims[-1] != 1:
            raise OptionError(
                "`top_mlp_dims` should end with 1, the logit. "
                f"Received: `top_mlp_dims` = {list(self.top_mlp_dims)}."
            )

    def widths(self, features: list[str]) -> list[int]:
        """Return the length of each categorical feature's vector."""
        return [self.embedding_dim] * len(features)


@dataclass(frozen=True)
class DLRMOptions(RankingOptions):
    """What can be set of DLRM."""

    def __post_init__(self) -> None:
        """Require vectors that can be multiplied with each other."""
        super().__post_init__()
        last = self.bottom_mlp_dims[-1]
        if last != self.embedding_dim:
            raise OptionError(
                "`bottom_mlp_dims` should end with the length of the vectors that its output is "
                f"multiplied with, `embedding_dim` = {self.embedding_dim}. "
                f"Received: `bottom_mlp_dims` = {list(self.bottom_mlp_dims)}, which ends with "
                f"{last}."
            )


@dataclass(frozen=True)
class DCNv2Options(RankingOptions):
    """What can be set of DCNv2."""

    embedding_dims: tuple[int, ...] | None = None
    """Lengths of the vectors, one for each categorical feature in the dataset's order; None for
    ``embedding_dim`` of all."""

    cross_layers: int = 3
    """How many cross layers."""

    cross_rank: int | None = 512
    """Length to which a cross layer brings its inputs in between; None for layers of full rank."""

    def __post_init__(self) -> None:
        """Check every option."""
        super().__post_init__()
        if self.embedding_dims is not None:
            dims = check_dims("embedding_dims", self.embedding_dims, at_least=1)
            object.__setattr__(self, "embedding_dims", dims)
        check_positive("cross_layers", self.cross_layers)
        if self.cross_rank is not None:
            check_positive("cross_rank", self.cross_rank)

    def widths(self, features: list[str]) -> list[int]:
        """Return the length of each categorical feature's vector."""
        if self.embedding_dims is None:
            return super().widths(features)
        if len(self.embedding_dims) != len(features):
            raise OptionError(
                f"`embedding_dims` should have one length for each of the {len(features)} "
                f"categorical features. Received: {len(self.embedding_dims)}: "
                f"{list(self.embedding_dims)}."
            )
        return list(self.embedding_dims)
