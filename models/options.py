"""Options of each model, with the published defaults, checked at construction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

from .blocks.checks import (
    ATTENTIONS,
    OptionError,
    check_choice,
    check_dims,
    check_length,
    check_positive,
    check_rate,
    check_switch,
    require,
)

AnyOptions = TypeVar("AnyOptions", bound="CheckedOptions")


Check = Callable[[str, Any], Any]
"""From an option's name and its value to the value, or an :class:`OptionError`."""


def one_of(choices: Sequence[str]) -> dict[str, Check]:
    """Have an option be one of some words."""
    return {"check": lambda option, value: check_choice(option, value, choices)}


def or_none(check: Check) -> Check:
    """Have an option that may be off be checked where it is not."""
    return lambda option, value: None if value is None else check(option, value)


AT_LEAST_ONE: dict[str, Check] = {
    "check": lambda option, value: check_dims(option, value, at_least=1)
}

CHECKS: dict[str, Check] = {
    "int": check_positive,
    "int | None": or_none(check_positive),
    "tuple[int, ...]": check_dims,
    "tuple[int, ...] | None": or_none(check_dims),
    "bool": check_switch,
    "float | None": check_rate,
}
"""What is checked of an option by its type, where its field has no ``check`` of its own."""


@dataclass(frozen=True)
class CheckedOptions:
    """Options of a model: a subclass lists them as fields, which are checked when it is made."""

    embedding_dim: int = 16
    """Length of the vector of one feature."""

    def __post_init__(self) -> None:
        """Check every option; a list of sizes becomes a tuple."""
        for option in fields(self):
            check = option.metadata.get("check") or CHECKS.get(str(option.type))
            if check is not None:
                value = check(option.name, getattr(self, option.name))
                object.__setattr__(self, option.name, value)

    @classmethod
    def parse(cls: type[AnyOptions], options: dict[str, Any]) -> AnyOptions:
        """Build the options from names and values; a name that is not one is an error."""
        known = [option.name for option in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise OptionError(
                f"Unknown option{'s' if len(unknown) > 1 else ''}: {', '.join(unknown)}. "
                f"{cls.__name__} has: {', '.join(known)}."
            )
        return cls(**options)

    def widths(self, features: list[str]) -> list[int]:
        """Return the length of each feature's vector."""
        return [self.embedding_dim] * len(features)

    def to_dict(self) -> dict[str, Any]:
        """Return names and values as JSON can hold them."""
        values = asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


AnyModelOptions = TypeVar("AnyModelOptions", bound="ModelOptions")
AnySplit = TypeVar("AnySplit", bound="DIENOptions")

SHORT_LENGTH = 10
"""Positions of a short history by default: of 100, the published 10."""


@dataclass(frozen=True)
class ModelOptions(CheckedOptions):
    """Options of every model."""

    stage_two_mlp_dims: tuple[int, ...] = (200, 80)
    """Hidden sizes of the classifier whose logit is evaluated."""
    dropout_rate: float | None = None
    """Share of the classifiers' last hidden layer dropped in training, and of SIM's auxiliary
    network's; None for off."""
    history_counts: bool = False
    """Whether the classifier reads how often, how recently and at what share the target's features
    occur in the history: see :class:`~.blocks.history_counts.HistoryCounts`."""
    history_similarity: bool = False
    """Whether the classifier reads how many positions of the history are how similar to the target
    item: see :class:`~.blocks.history_counts.HistorySimilarity`."""
    number_pieces: int | None = None
    """Into how many equal pieces from 0 to 12 each number of user and target is cut: see
    :class:`~.blocks.number_pieces.NumberPieces`. None: the classifier reads it as it is."""
    history_prototypes: int | None = None
    """Prototypes of a summary of the whole history, which knows no target and can be kept: see
    :class:`~.blocks.history_prototypes.HistoryPrototypes`. None: no summary."""
    recent_length: int | None = None
    """How many of the newest positions are read one by one, all else of the model; those before are
    in the summary alone. None: all."""

    def recent_within(self, history_length: int) -> int:
        """Return how many positions of the dataset's histories are read one by one."""
        recent = history_length if self.recent_length is None else self.recent_length
        most = f"be at most {history_length}, the positions of the schema's histories"
        require(recent <= history_length, "recent_length", most, recent)
        return recent

    def for_history(self: AnyModelOptions, history_length: int) -> AnyModelOptions:
        """Return the options as they are for histories of so many positions, all filled in."""
        return self


@dataclass(frozen=True)
class WholeHistoryOptions(ModelOptions):
    """Options of every model that attends to the whole history at once."""

    attention_sums: bool = False
    """Whether the classifier reads attention without a softmax, too: see
    :class:`~.blocks.attention.SummedAttention`."""


@dataclass(frozen=True)
class DINOptions(WholeHistoryOptions):
    """Options of DIN."""

    attention: str = field(default="dot", metadata=one_of(ATTENTIONS))
    """How a position is scored: ``"dot"`` or ``"activation_unit"``."""
    separate_attention: bool = False
    """Whether search and attention have an item table of their own, beside the one that says what
    is taken of the positions found (DARE)."""


@dataclass(frozen=True)
class STCAOptions(WholeHistoryOptions):
    """Options of STCA."""

    layers: int = 2
    """How many layers of attention there are; each reads what those before it found."""
    heads: int = 4
    """Heads of each layer; they share the length of an item's vector among them."""
    swiglu_dim: int | None = None
    """Hidden size of the SwiGLU before each layer. None: twice the length of an item's vector."""
    time_buckets: int | None = 32
    """Rows of the table of time intervals, where the dataset has them; one for each power of 2.
    None: times are not read."""
    position_buckets: int | None = None
    """Rows of the table of positions, by how many interactions ago; one for each power of 2. None:
    positions are not read."""


@dataclass(frozen=True)
class DIENOptions(ModelOptions):
    """Options of DIEN."""

    aux_mlp_dims: tuple[int, ...] = field(default=(100, 50), metadata=AT_LEAST_ONE)
    """Hidden sizes of the auxiliary network."""
    auxiliary_loss: bool = True
    """Whether the auxiliary network is trained beside; it reads the negative history, and is off
    for a dataset without one."""
    one_pass: bool = False
    """Whether the GRU goes once over the short histories of all of a user's samples in a row of a
    batch: it then remembers what was before a sample's own. As published it starts from zero at
    each; of plain rows, and of one position, both are the same."""
    long_seq_length: int | None = field(default=None, metadata={"check": or_none(check_length)})
    """How many of a history's positions are the long history; DIEN reads those after them. None:
    all but the newest 10, or all where the short history is not read."""
    least_long: ClassVar[int] = 0  # positions of a long history at least

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.auxiliary_loss:
            self.refuse_change("aux_mlp_dims", "where `auxiliary_loss` is true")

    def refuse_change(self, option: str, where: str) -> None:
        """Refuse an option that differs from its default and has no effect."""
        value = getattr(self, option)
        default = type(self).__dataclass_fields__[option].default
        require(value == default, option, f"be given {where} only", value)

    @property
    def reads_short(self) -> bool:
        """Whether the short history is read."""
        return True

    @property
    def long_length(self) -> int:
        """Where a history is split, as :meth:`for_history` has set it."""
        assert self.long_seq_length is not None
        return self.long_seq_length

    def for_history(self: AnySplit, history_length: int) -> AnySplit:
        """Say where a history is split; both parts have a position where they are read."""
        long = self.long_seq_length
        if long is None:
            newest = SHORT_LENGTH if self.reads_short else 0
            long = max(self.least_long, history_length - newest)
        most = history_length - int(self.reads_short)
        leaves = "leave a short history: at most" if self.reads_short else "be at most"
        expected = f"{leaves} {most}, the schema's histories having {history_length} positions"
        require(long <= most, "long_seq_length", expected, long)
        return replace(self, long_seq_length=long)


SHORT_HISTORIES = ("dien", "attention", "none")
"""How a model that searches a long history may read the short one."""


@dataclass(frozen=True)
class SearchedOptions(DIENOptions):
    """Options of every model that searches a long history."""

    least_long = 1
    stage_one: bool = True
    """Whether a first stage, attention by the dot product over the whole long history, is trained
    beside what is evaluated."""
    stage_one_mlp_dims: tuple[int, ...] = (200,)
    """Hidden sizes of the first stage's classifier."""
    short_history: str = field(default="dien", metadata=one_of(SHORT_HISTORIES))
    """How the short history is read: ``"dien"``, ``"attention"``, or ``"none"``: not at all."""
    attention_sums: bool = False
    """Whether the classifier reads attention without a softmax over the whole long history, too:
    see :class:`~.blocks.attention.SummedAttention`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        or_none(check_positive)("long_seq_length", self.long_seq_length)
        if not self.stage_one:
            self.refuse_change("stage_one_mlp_dims", "where `stage_one` is true")
        if self.short_history != "dien":
            for name in ("aux_mlp_dims", "auxiliary_loss", "one_pass"):
                self.refuse_change(name, 'with `short_history` = "dien"')

    @property
    def reads_short(self) -> bool:
        """Whether the short history is read."""
        return self.short_history != "none"


PUBLISHED_SEARCHES = ("soft", "hard")
"""Known without TensorFlow, which a run imports only after it has chosen its GPU."""


@dataclass(frozen=True)
class SIMOptions(SearchedOptions):
    """Options of SIM."""

    top_k: int = 50
    """Positions of the long history that the search keeps at most."""
    search: str = "soft"
    """How the long history is searched: ``"soft"``, by score, ``"hard"``, by category, or any other
    unit's name (:func:`~.blocks.search.search_and_attention.register_search_unit`)."""
    category_feature: str | None = None
    """Hard search: the target item's column that is its category."""
    heads: int | None = None
    """Heads of the exact search unit's attention. None: the published attention by the dot product,
    or, where the dataset has time intervals, 4 heads over items and times."""
    time_buckets: int = 32
    """Rows of the table of time intervals, where the dataset has them; one for each power of 2."""
    separate_attention: bool = False
    """Whether search and attention have an item table of their own, beside the one that says what
    is taken of the positions found (DARE)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search not in PUBLISHED_SEARCHES:
            check_choice("search", self.search, _searches())
        if (self.search == "hard") != (self.category_feature is not None):
            raise OptionError(
                '`category_feature` should name a column with `search` = "hard", and be None '
                f"otherwise. Received: `search` = {self.search!r}, "
                f"`category_feature` = {self.category_feature!r}."
            )


def _searches() -> list[str]:
    """Name every search unit; they are layers, so that TensorFlow is imported for them."""
    from .blocks.search.search_and_attention import SEARCH_UNITS

    return list(SEARCH_UNITS)


@dataclass(frozen=True)
class LongOptions(SearchedOptions):
    """Options that ETA, SDIM and TWIN share: no first stage, short history by attention."""

    stage_one: bool = False
    """Whether a first stage is trained beside what is evaluated."""
    short_history: str = "attention"
    """How the short history is read: ``"attention"``, ``"dien"``, or ``"none"``: not at all."""
    heads: int = 4
    """Heads of the attention to what was found, and of that to the short history."""


@dataclass(frozen=True)
class ETAOptions(LongOptions):
    """Options of ETA."""

    top_k: int = 48
    """Positions of the long history that the search keeps at most."""
    hash_bits: int = 64
    """Signs of a position's code; more than twice the length of an item's vector gains nothing."""


@dataclass(frozen=True)
class SDIMOptions(LongOptions):
    """Options of SDIM."""

    hashes: int = 32
    """Number of hashes of a position."""
    bits_per_hash: int = 4
    """Signs of one hash: the more, the nearer two items are that collide."""
    collision_counts: bool = False
    """Whether the classifier reads how much collides, beside its sum."""


@dataclass(frozen=True)
class TWINOptions(LongOptions):
    """Options of TWIN."""

    top_k: int = 100
    """How many distinct positions of the long history the search keeps at most, over all heads."""
    time_buckets: int = 32
    """Rows of the table of time intervals, where the dataset has them; one for each power of 2."""
    separate_attention: bool = False
    """Whether search and attention have an item table of their own, beside the one that says what
    is taken of the positions found (DARE)."""


AnyRankingOptions = TypeVar("AnyRankingOptions", bound="RankingOptions")


@dataclass(frozen=True)
class RankingOptions(CheckedOptions):
    """Options that DLRM and DCNv2 share."""

    embedding_dim: int = 128
    """Length of the vector of one feature."""
    bottom_mlp_dims: tuple[int, ...] = field(default=(512, 256, 128), metadata=AT_LEAST_ONE)
    """Sizes of the layers over the numerical features."""
    top_mlp_dims: tuple[int, ...] = field(default=(1024, 1024, 512, 256, 1), metadata=AT_LEAST_ONE)
    """Sizes of the layers over everything; the last is the logit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        dims = list(self.top_mlp_dims)
        require(dims[-1] == 1, "top_mlp_dims", "end with 1, the logit", dims)


@dataclass(frozen=True)
class DLRMOptions(RankingOptions):
    """Options of DLRM."""

    def __post_init__(self) -> None:
        """Require vectors that can be multiplied with each other."""
        super().__post_init__()
        dims, dim = list(self.bottom_mlp_dims), self.embedding_dim
        ends = "end with the length of the vectors that its output is multiplied with"
        require(dims[-1] == dim, "bottom_mlp_dims", f"{ends}, `embedding_dim` = {dim}", dims)


@dataclass(frozen=True)
class DCNv2Options(RankingOptions):
    """Options of DCNv2."""

    embedding_dims: tuple[int, ...] | None = field(
        default=None, metadata={"check": or_none(AT_LEAST_ONE["check"])}
    )
    """Lengths of the vectors, one for each categorical feature in the dataset's order; None for
    ``embedding_dim`` of all."""
    cross_layers: int = 3
    """Number of cross layers."""
    cross_rank: int | None = 512
    """Length to which a cross layer brings its inputs in between; None for layers of full rank."""

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


@dataclass(frozen=True)
class TwoTowerOptions(CheckedOptions):
    """Options of the two towers."""

    tower_dim: int = 64
    """Length of a user's and of an item's vector, which the index holds."""
    tower_mlp_dims: tuple[int, ...] = (128,)
    """Hidden sizes of each tower; none for a single matrix."""
    history_weightings: int = 4
    """How many weighted means of the history the user's tower reads, each with a learned weight
    for every position."""
    temperature: float = 0.07
    """Divisor of the cosine of two vectors before the softmax."""

    def __post_init__(self) -> None:
        super().__post_init__()
        temperature = self.temperature
        is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
        fits = is_number and 0 < temperature <= 100
        require(fits, "temperature", "be above 0 and at most 100", temperature)
