"""What a run is told: every published parameter under its name, and a few of our own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from ...foundation.exceptions import MerlinSimError
from ...models.families.registry import DEFAULT, families
from ...steps import OPTIMIZERS

MODES = ("train", "inference")
AFFINITIES = (
    "socket",
    "single",
    "single_unique",
    "socket_unique_interleaved",
    "socket_unique_continuous",
    "disabled",
)
EXCHANGES = ("sparse", "dense")


@dataclass(frozen=True)
class RunConfig:
    """A run of training or inference; what None means stands with each option.

    Sizes called global are over all ranks. Unknown names and wrong values are refused together,
    in one message.
    """

    dataset_dir: Path
    """Directory with the feature spec and the data."""
    model_type: str | None = None
    """A registered family, or package.module:FAMILY. None is the default one; in inference with a
    checkpoint, what that is of."""
    model_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the model by name; those not given have the model's defaults."""
    mode: str = "train"
    """train, or inference: a forward pass over the test data."""
    feature_spec: str = "feature_spec.yaml"
    """The spec's file name in the directory."""
    optimizer: str = "adam"
    """adam, lazy_adam (moments of the rows in a batch only) or sgd."""
    lr: float = 0.01
    """Learning rate, used as given whatever the number of ranks."""
    weight_decay: float = 0.0
    """Decoupled decay: each step takes this share of every weight off it, whatever the lr."""
    epochs: int = 3
    """How often the training data is gone through, counting epochs before a resume."""
    global_batch_size: int = 131072
    """Rows per step over all ranks, in training, evaluation and inference."""
    amp: bool = False
    """Mixed precision: float16 arithmetic, float32 weights, dynamic loss scaling."""
    xla: bool = False
    """Compile forward and backward pass with XLA."""
    drop_remainder: bool = False
    """Leave out the rows of an epoch that do not fill a global batch."""
    repeat_count: int = 0
    """Go through the training data this many times in each epoch; 0, as published, is once too."""
    shuffle: bool = True
    """A new order of the rows in each epoch."""
    window_rows: int = 65536
    """Rows that are shuffled together, over all ranks; the feed holds about two windows."""
    prefetch_train_size: int | None = None
    """Batches made ahead in training."""
    prefetch_test_size: int | None = None
    """Batches made ahead in evaluation and inference."""
    results_dir: Path = Path("/tmp/sim")
    """Where logs, metrics and figures go."""
    log_filename: str = "log.json"
    """One JSON object per line, in results_dir."""
    tensorboard: bool = False
    """Write TensorBoard summaries to results_dir/tensorboard."""
    save_checkpoint_path: Path | None = None
    """Directory of checkpoints to write."""
    load_checkpoint_path: Path | None = None
    """Directory of checkpoints to go on from."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None for one at the end of each epoch."""
    keep_checkpoints: int = 3
    """How many of the newest checkpoints stay; the best by test AUC stays too."""
    benchmark: bool = False
    """Measure throughput: no evaluation, no checkpoint, a fixed number of steps."""
    benchmark_warmup_steps: int = 20
    """Steps before those that are measured."""
    benchmark_steps: int | None = 200
    """Steps that are measured; None for one pass over the data, warm-up included."""
    affinity: str = "socket_unique_interleaved"
    """How CPU cores are shared out among the ranks of a machine."""
    inter_op_parallelism: int | None = None
    """Threads over operations; None lets TensorFlow choose."""
    intra_op_parallelism: int | None = None
    """Threads within an operation; None is 1 on at most two cores, else TensorFlow chooses."""
    seed: int | None = None
    """Seed of weights, order and dropout; None draws one (and logs it)."""
    fp16_compression: bool = False
    """Send gradients between ranks as float16."""
    gradient_exchange: str = "sparse"
    """How ranks exchange gradients of tables: the rows of the batches, or whole tables."""
    start_timeout: float = 300.0
    """Seconds for which a rank that has started waits for the others to start."""
    stall_timeout: float = 45.0
    """Seconds without progress after which a rank is given up and the run ended."""

    def __post_init__(self) -> None:
        """Gather everything that is wrong and raise once."""
        for name in ("dataset_dir", "results_dir", "save_checkpoint_path", "load_checkpoint_path"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, Path(value))
        if self.model_type is None and not self.scores_checkpoint:
            object.__setattr__(self, "model_type", DEFAULT)
        problems = list(_problems(self))
        if problems:
            raise MerlinSimError("\n".join(problems))

    @property
    def scores_checkpoint(self) -> bool:
        """Whether the run computes with the weights of a checkpoint and trains nothing."""
        return self.mode == "inference" and self.load_checkpoint_path is not None

    def to_dict(self) -> dict[str, Any]:
        """Return names and values as JSON and YAML can hold them, the model's among them."""
        values = dataclasses.asdict(self)
        options = values.pop("model_options")
        known = {f.name for family in families().values() for f in fields(family.options)}
        values |= {name: value for name, value in options.items() if name in known}
        own = {name: value for name, value in options.items() if name not in known}
        if own:
            values["model_option"] = [f"{n}={json.dumps(_plain(v))}" for n, v in own.items()]
        return {name: _plain(value) for name, value in values.items()}

    def write(self, path: Path) -> None:
        """Write the resolved configuration; ``--config`` reads it again."""
        path.write_text(yaml.safe_dump(self.to_dict(), sort_keys=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, tuple | list) else value


def read_config(path: Path, known: list[str]) -> dict[str, Any]:
    """Read a run's YAML: published or own names with their values.

    Args:
        path: the file.
        known: the names that may be in it.

    Raises:
        MerlinSimError: if the file cannot be read, or naming all keys that are not known.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise MerlinSimError(f"{path} cannot be read: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise MerlinSimError(f"{path} should hold names and values. Received: {content!r:.80}")
    unknown = [str(key) for key in content if key not in known]
    if unknown:
        raise MerlinSimError(
            f"{path} has unknown keys: {', '.join(unknown)}. Known: {', '.join(known)}."
        )
    return content


_POSITIVE = ("epochs", "global_batch_size", "keep_checkpoints", "window_rows")
_POSITIVE_OR_NONE = (
    "prefetch_train_size",
    "prefetch_test_size",
    "checkpoint_every",
    "benchmark_steps",
    "inter_op_parallelism",
    "intra_op_parallelism",
)
_AT_LEAST_ZERO = ("repeat_count", "benchmark_warmup_steps", "weight_decay", "seed")
_CHOICES = {
    "optimizer": OPTIMIZERS,
    "mode": MODES,
    "affinity": AFFINITIES,
    "gradient_exchange": EXCHANGES,
}


def _problems(config: RunConfig) -> list[str]:
    problems = []

    def refuse(name: str, wanted: str) -> None:
        problems.append(f"`{name}` should be {wanted}. Received: {getattr(config, name)!r}")

    wrong = {name for name in _KINDS if not _is_kind(getattr(config, name), _KINDS[name])}
    for name in sorted(wrong):
        refuse(name, _KINDS[name].replace(" | None", ""))
    for name in _POSITIVE:
        if name not in wrong and getattr(config, name) < 1:
            refuse(name, "a positive integer")
    for name in _POSITIVE_OR_NONE:
        if name not in wrong and getattr(config, name) is not None and getattr(config, name) < 1:
            refuse(name, "a positive integer, or not given")
    for name in _AT_LEAST_ZERO:
        if name not in wrong and (getattr(config, name) or 0) < 0:
            refuse(name, "0 or more")
    for name in ("lr", "start_timeout", "stall_timeout"):
        if name not in wrong and not 0 < getattr(config, name) < float("inf"):
            refuse(name, "positive")
    for name, choices in _CHOICES.items():
        if name not in wrong and getattr(config, name) not in choices:
            refuse(name, "one of " + ", ".join(choices))
    if "log_filename" not in wrong and Path(config.log_filename).name != config.log_filename:
        refuse("log_filename", "a file name without directories")
    return problems


_KINDS = {
    entry.name: str(entry.type)
    for entry in fields(RunConfig)
    if str(entry.type).split(" ")[0] in ("int", "float", "str", "bool")
}


def _is_kind(value: Any, kind: str) -> bool:
    if value is None:
        return kind.endswith("| None")
    base = kind.split(" ")[0]
    if base == "bool" or isinstance(value, bool):
        return base == "bool" and isinstance(value, bool)
    if base == "float":
        return isinstance(value, int | float)
    return isinstance(value, int if base == "int" else str)
