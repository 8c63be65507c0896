"""The configuration of a run: every published parameter under its name, and a few of our own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from ...foundation.exceptions import MerlinSimError
from ...foundation.settings import problems_of, setting, settle_paths
from ...models.known_families import DEFAULT, families
from ...parallel.checkpoints import BEST, WANTED, is_choice
from ...parallel.placement.plan import CUTS, parse_size
from ...parallel.steps import OPTIMIZERS
from ..checkpoints import MEAN, NEW_ROWS
from ..run_log import LOG, LOG_FORMATS
from .replayed import parse_replay

MODES = ("train", "inference")
AFFINITIES = (
    "socket",
    "single",
    "single_unique",
    "socket_unique_interleaved",
    "socket_unique_continuous",
    "disabled",
)
SELECTIONS = ("validation", "test", "newest")
EXCHANGES = ("sparse", "dense")
SPREAD = "spread"
TABLES = ("replicated", SPREAD)
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class RunConfig:
    """A run of training or inference: its settings, each with its line of help.

    Sizes called global are over all ranks. None stands where the command line takes -1, 0 or "".
    Unknown names and wrong values are refused together, in one message.
    """

    dataset_dir: Path = setting(MISSING, "Directory with the feature spec and the data.")
    feature_spec: str = setting("feature_spec.yaml", "Name of the spec in it.")
    model_type: str | None = None
    """A registered family, or package.module:FAMILY. None is the default one; of a run that begins
    with a checkpoint, what that is of."""
    model_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the model by name; those not given have the checkpoint's values, or the model's
    defaults."""
    mode: str = setting("train", "Train, or score test data (inference).", choices=MODES)
    optimizer: str = setting(
        "adam",
        "lazy_adam keeps moments of the rows in a batch only, adagrad one float a row of a table.",
        choices=OPTIMIZERS,
    )
    lr: float = setting(0.01, "Learning rate, as given for any number of ranks.", above=0)
    warmup_steps: int = setting(0, "Steps in which the learning rate rises from 0.", at_least=0)
    decay_start_step: int | None = setting(
        None, "Step with which it begins to fall; -1: never.", at_least=0, off=-1
    )
    decay_steps: int | None = setting(
        None, "Steps in which it falls to 0; -1: none.", at_least=1, off=-1
    )
    decay_power: float = setting(2.0, "Power of the fall; 1 is a line.", above=0)
    weight_decay: float = setting(
        0.0, "Share of each weight that a step takes off it, whatever the lr.", at_least=0
    )
    table_weight_decay: float | None = setting(
        None,
        "The same of embedding tables, if another than weight_decay: what one row of a table "
        "learns of few samples is the first to be wrong of others.",
        at_least=0,
    )
    table_lr_scale: float = setting(
        1.0, "Factor of the learning rate of embedding tables.", at_least=0
    )
    epochs: int = setting(3, "Epochs in all, those before a resume included.", at_least=1)
    global_batch_size: int = setting(131072, "Samples per step over all ranks.", at_least=1)
    max_steps: int | None = setting(
        None, "Steps in all after which training ends; -1: after epochs.", at_least=1, off=-1
    )
    evals_per_epoch: int = setting(
        1,
        "How often an epoch scores test and validation data, at its end too; where an AUC finds "
        "the best checkpoint, each time is saved.",
        at_least=1,
    )
    early_stopping: int | None = setting(
        None,
        "Evaluations in a row without a better AUC of the validation data after which training "
        "ends; 0: it does not.",
        at_least=1,
        off=0,
    )
    steps_per_execution: int | None = setting(
        None,
        "Steps in one graph, between which nothing is read from the device; checkpoint_every and "
        "max_steps are multiples of it. [default: 1, on a GPU up to 16]",
        at_least=1,
    )
    callback: str | None = setting(
        None,
        "Callbacks of Keras, package.module:NAME, several by commas; what can be called is called "
        'for one. Their logs have val_auc, val_loss and so on of the validation data; "": none.',
        off="",
    )
    metric: str | None = setting(
        None, 'Metrics of Keras beside the published ones, named as callbacks; "": none.', off=""
    )
    amp: bool = setting(False, "Mixed precision: float16, loss scaling.")
    precision: str = setting(
        "fp32",
        "bf16: mixed precision on processors (avx512_bf16) and GPUs that have bfloat16; weights, "
        "logits and losses stay float32, and no loss is scaled.",
        choices=PRECISIONS,
    )
    tf32: bool = setting(
        True,
        "On GPUs that can (from Ampere on), multiply float32 matrices in TF32: inputs rounded to "
        "10 bits of mantissa, sums in float32. As TensorFlow does and the published figures were "
        "taken; --no_tf32 is float32 throughout. [default: tf32]",
        flags="--tf32/--no_tf32",
    )
    loss_scale: float | None = setting(
        None, "Static scale of the loss under --amp; 0: dynamic.", above=0, off=0
    )
    xla: bool = setting(False, "Compile with XLA (on CPU: over 20 s, once).")
    drop_remainder: bool = setting(
        False, "Leave out rows that do not fill a global batch in training."
    )
    repeat_count: int = setting(
        0, "Go through the training data so many times an epoch; 0: once.", at_least=0
    )
    shuffle: bool = setting(
        True, "A new order in each epoch. [default: shuffle]", flags="--shuffle/--no_shuffle"
    )
    candidates: int | None = setting(
        None,
        "With one row per user: samples of a user that share one history in a batch, those of "
        "whole positions, two each as a rule; 1: plain rows, each with its own. [default: 16, or "
        "about as many; 1 with positions_together]",
        at_least=1,
    )
    positions_together: int | None = setting(
        None,
        "With one row per user and plain rows: consecutive positions of a user that stay together "
        "when it is shuffled. [default: 8]",
        at_least=1,
    )
    fresh_negatives: bool = setting(
        False, "With one row per user: draw other negatives in every epoch."
    )
    data_memory_mb: int = setting(
        4096,
        "Memory on the device of each rank for the data of a mapping, in MB. What fits stays; "
        "else it is read in blocks, the next one while this one trains.",
        at_least=1,
    )
    window_rows: int = setting(65536, "Rows shuffled together.", at_least=1)
    num_parallel_calls: int | None = setting(
        None,
        "With one row per sample: threads that decode on CPU. [default: one per core of the rank]",
        at_least=1,
    )
    results_dir: Path = setting(Path("/tmp/sim"), "Directory of logs, metrics and configuration.")
    log_filename: str = setting(LOG, "One JSON object a line, in results_dir.")
    log_format: str = setting(
        "json",
        "json: entries of our own; dllogger: the published lines, DLLL {...} with step [epoch, "
        "step], [epoch] or [], which cost a pass over the test data for its loss.",
        choices=LOG_FORMATS,
    )
    tensorboard: bool = setting(False, "Write TensorBoard summaries to results_dir/tensorboard.")
    save_scores: bool = setting(
        False,
        "Write row, user, item, label and score of each test sample to "
        "results_dir/test_scores.parquet, after "
        "the last evaluation: from this `merlin-sim report` shows which differences are noise.",
    )
    save_checkpoint_path: Path | None = setting(
        None, 'Directory of checkpoints to write; "": none.', off=""
    )
    load_checkpoint_path: Path | None = setting(
        None, 'Directory of checkpoints to go on from; "": none.', off=""
    )
    step: str = setting(
        BEST,
        "In inference, which checkpoint of the directory is scored: best, by the AUC that its run "
        "chose by (select_by), or the newest where it chose none; newest; or the number of a step. "
        "Training goes on from the newest.",
    )
    warm_start: Path | None = setting(
        None,
        "Directory of checkpoints of a run on another dataset, out of which this one grew "
        "(`preprocess --fitted`): known rows of tables, all other weights and the optimizer go on, "
        'epochs begin anew. Of a run that is resumed, it was where it began; "": none.',
        off="",
    )
    new_rows: str = setting(
        MEAN,
        "How rows of keys begin that --warm_start finds new: mean, of the trained rows of the "
        "item's category or else of the table, or random, as in a new model.",
        choices=NEW_ROWS,
    )
    replay: str | None = setting(
        None,
        "DIRECTORY:SHARE, an older dataset out of which this one grew, as days/monday:0.2: so much "
        'of each batch, in parts that ranks share equally, is of its training rows; "": none.',
        off="",
    )
    known_rows_rate: float = setting(
        1.0,
        "What rows of keys that --warm_start knows move by, in parts of what they would: 0 leaves "
        "them as they are, while rows of new keys and all other weights learn.",
        at_least=0,
    )
    checkpoint_every: int | None = setting(
        None, "Steps between checkpoints; 0: at the end of epochs.", at_least=1, off=0
    )
    keep_checkpoints: int = setting(
        3,
        "Newest checkpoints kept; the best stays too: see select_by.",
        at_least=1,
    )
    select_by: str | None = setting(
        None,
        "By whose AUC the best checkpoint is found, which stays: validation, or test, whose AUC is "
        "flattered where it chooses; newest: none is chosen. [default: validation where the "
        "dataset has validation data, else newest]",
        choices=SELECTIONS,
    )
    benchmark: bool = setting(False, "Measure throughput: no evaluation, no checkpoints.")
    benchmark_warmup_steps: int = setting(20, "Steps before those measured.", at_least=0)
    benchmark_steps: int | None = setting(
        200, "Steps measured after those; 0 or less: one pass over the data.", at_least=1
    )
    affinity: str = setting(
        "socket_unique_interleaved",
        "How the cores of a machine are shared out among its ranks.",
        choices=AFFINITIES,
    )
    inter_op_parallelism: int | None = setting(
        None, "Threads over operations; 0: TensorFlow's choice.", at_least=1, off=0
    )
    intra_op_parallelism: int | None = setting(
        None,
        "Threads in an operation; 0: TensorFlow's choice, but on at most two cores one in "
        "inference and for models of short operations.",
        at_least=1,
        off=0,
    )
    seed: int | None = setting(
        None, "Seed of weights, order and dropout; -1: drawn, and logged.", at_least=0, off=-1
    )
    deterministic: bool = setting(
        False,
        "Use TensorFlow's deterministic operations only: with one seed and as many ranks, equal "
        "bits from run to run on any number of threads, and on GPUs. Slower.",
    )
    fp16_compression: bool = setting(
        False,
        "Send gradients between ranks as float16, as the published code does: half the bytes. Off "
        "by default: the gradients are those of a single rank then, and what is sent of tables is "
        "rows only.",
    )
    gradient_exchange: str = setting(
        "sparse",
        "Gradients of embedding tables that ranks exchange: rows of the batches, or whole tables.",
        choices=EXCHANGES,
    )
    tables: str = setting(
        "replicated",
        "Where embedding tables are: all on every rank, or spread over the ranks by a plan "
        "(`merlin-sim plan` shows it).",
        choices=TABLES,
    )
    cut: str = setting(
        "auto", "How spread tables are cut: the plan's choice, or one form for all.", choices=CUTS
    )
    memory: str | None = setting(
        None,
        "Memory of a rank's device, as 80GB, of which a plan gives nine tenths to tables, their "
        'gradients and the optimizer; "": any.',
        off="",
    )
    host_memory: str | None = setting(
        None,
        "Memory of a rank in its machine, as 400GB, for tables that its device has no room for: "
        'they are looked up and trained there; "": none.',
        off="",
    )
    start_timeout: float = setting(300.0, "Seconds that a rank waits for others to start.", above=0)
    stall_timeout: float = setting(
        45.0, "Seconds after which a rank that hangs ends the run.", above=0
    )

    read_from: tuple[Path, str] | None = None
    """A directory and the name of its spec that are read in place of ``dataset_dir``: the same
    dataset in a form that the feed reads."""

    @property
    def policy(self) -> str:
        """Keras's name for the precision in which layers compute."""
        if self.precision == "bf16":
            return "mixed_bfloat16"
        return "mixed_float16" if self.amp else "float32"

    def __post_init__(self) -> None:
        settle_paths(self)
        if self.model_type is None and not self.begins_with_checkpoint:
            object.__setattr__(self, "model_type", DEFAULT)
        problems = list(_problems(self))
        if problems:
            raise MerlinSimError("\n".join(problems))

    @property
    def begins_with_checkpoint(self) -> bool:
        """Whether a checkpoint knows the model, and which options it has where none are given."""
        warm = self.warm_start is not None and self.mode == "train"
        return self.load_checkpoint_path is not None or warm

    @property
    def written_directories(self) -> list[Path]:
        """The directories that the run writes, of which each has one run at a time."""
        saved = self.save_checkpoint_path
        saves = saved is not None and self.mode == "train" and not self.benchmark
        return [self.results_dir, *([saved] if saved is not None and saves else [])]

    def to_dict(self) -> dict[str, Any]:
        """Return names and values as JSON and YAML can hold them, the model's among them."""
        values = dataclasses.asdict(self)
        options = values.pop("model_options")
        values.pop("read_from")
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
    """Read a run's YAML: published or own names with their values."""
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


def _problems(config: RunConfig) -> Iterator[str]:
    yield from problems_of(config)
    log, step = config.log_filename, config.step
    if isinstance(log, str) and Path(log).name != log:
        yield f"`log_filename` should be a file name without directories. Received: {log!r}"
    if isinstance(step, str) and not is_choice(step):
        yield f"`step` should be {WANTED}. Received: {step!r}"
    scores_checkpoint = config.mode == "inference" and config.load_checkpoint_path is not None
    if config.step != BEST and not scores_checkpoint:
        yield (
            "`step` should be given with inference of a checkpoint only: training goes on from the "
            f"newest. Received: {config.step!r}"
        )
    if (config.decay_steps is None) != (config.decay_start_step is None):
        yield (
            "`decay_start_step` and `decay_steps` belong together. Received: "
            f"{config.decay_start_step} and {config.decay_steps}"
        )
    at_once = config.steps_per_execution or 1
    for name in ("checkpoint_every", "max_steps"):
        value = getattr(config, name)
        if isinstance(value, int) and isinstance(at_once, int) and value % at_once:
            yield (
                f"`{name}` should be a multiple of `steps_per_execution`, {at_once}. "
                f"Received: {value}"
            )
    for name in ("memory", "host_memory"):
        try:
            if getattr(config, name) is not None:
                parse_size(getattr(config, name))
        except MerlinSimError as error:
            yield f"`{name}`: {error}"
    of_plan = (config.memory, config.host_memory, config.cut)
    if config.tables != SPREAD and of_plan != (None, None, "auto"):
        yield (
            "`memory`, `host_memory` and `cut` should be given with spread `tables` only. "
            f"Received: {config.memory}, {config.host_memory} and {config.cut}"
        )
    if config.host_memory is not None and config.memory is None:
        yield (
            "`host_memory` should be given with `memory`, that of the device, which decides what "
            f"does not fit there. Received: {config.host_memory} and {config.memory}"
        )
    if config.host_memory is not None and config.gradient_exchange == "dense":
        yield (
            "`gradient_exchange` should be sparse with `host_memory`: whole tables would have to "
            "fit the device. Received: dense"
        )
    if config.save_scores and config.benchmark:
        yield "`save_scores` should not be given with benchmark, which evaluates nothing."
    for name, default in (("new_rows", MEAN), ("known_rows_rate", 1)):
        if getattr(config, name) != default and config.warm_start is None:
            yield (
                f"`{name}` should be given with warm_start only: no row of a new model is known. "
                f"Received: {getattr(config, name)}"
            )
    try:
        if config.replay is not None:
            parse_replay(config.replay)
    except ValueError:
        yield (
            "`replay` should be a directory and a share between 0 and 1, as days/monday:0.2. "
            f"Received: {config.replay!r}"
        )
    if config.amp and config.precision != "fp32":
        yield f"`precision` should be fp32 with amp, which is float16. Received: {config.precision}"
    if config.loss_scale is not None and not config.amp:
        yield (
            "`loss_scale` should be given with amp only: float32 needs none. "
            f"Received: {config.loss_scale!r}"
        )
