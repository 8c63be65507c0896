"""The steps of a loader as Keras counts them, and what the model executes of them.

Keras is given the numbers of the steps alone. What a step is made of goes from the loader to the
compiled step by itself: it stays on the device, and is never copied through ``tf.data``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from ..dataloader.loader import Step
from ..parallel.steps.sample_batch import Make


class Executed(NamedTuple):
    """Results of the steps of an execution, [steps, ...] each; still on the device."""

    losses: tf.Tensor
    """[steps, losses] Of the global batch, in the model's order; the first is minimised."""
    stopped: tf.Tensor
    """Whether any rank was asked to stop."""
    finite: tf.Tensor
    """Whether the gradients were finite; where they were not, no weight was changed."""
    samples: tf.Tensor
    """How many samples of the global batch counted."""
    loss_scale: tf.Tensor
    """The scale of the loss after the step."""

    @classmethod
    def joined(cls, parts: Sequence[Executed]) -> Executed:
        """Put what several executions report behind each other."""
        return cls(*(tf.concat(columns, 0) for columns in zip(*parts, strict=True)))


@dataclass
class FitProgress:
    """How far ``fit`` has come with a loader: ``model.progress``, for callbacks to read."""

    epoch: int = 0
    """Epochs that are complete, those before a resume included."""
    step: int = 0
    """Steps done in the epoch that is not; all of them while it ends."""
    steps: int = 0
    """Steps done in all."""
    steps_of_epoch: int = 0
    stop_asked: Callable[[], bool] = bool
    """Whether this rank was asked to stop, which every rank learns with the next step."""
    executed: Executed | None = None
    """What the last execution reported."""
    epochs: int | None = None
    """Epochs in all."""
    loader: Any = None
    """What samples come from."""
    callbacks: Sequence[Any] = ()
    """Those of ``fit``, as it was given them."""
    validates: bool = False
    """Whether ``fit`` was given validation data."""
    ended: tuple[str, str] | None = None
    """What ended the training before its last epoch was over: in two words, and why."""

    @property
    def is_epoch_complete(self) -> bool:
        """Whether all steps of the epoch are done."""
        return self.step == self.steps_of_epoch

    def advance(self, steps: int) -> None:
        """Count steps; they are of the next epoch where all of this one are done."""
        if self.is_epoch_complete:
            self.epoch, self.step = self.epoch + 1, 0
        self.step += steps
        self.steps += steps


@dataclass(frozen=True)
class MadeOf:
    """Makes the batch of a step; it is the same of all loaders that make samples alike."""

    make_samples: Callable[..., Any]

    def __call__(self, given: Step) -> Any:
        """Make it, in TensorFlow ops."""
        return self.make_samples(given.data, given.entries, given.seeds)


class Graphs:
    """Compiled functions, by what they depend on: a plain object, so that Keras tracks nothing."""

    def __init__(self) -> None:
        self._made: dict[Any, Callable[..., Any]] = {}

    def get(self, key: Any, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """Return what was made for a key, or make it."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


class StepsDone:
    """The seed and how many steps were done, [2] int64, as steps hand them on: on the device."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._held: tuple[tuple[int, int], tf.Tensor] | None = None

    def on_device(self, seed: int, steps: int) -> tf.Tensor:
        """Return what is held, or copy it to the device if that is something else."""
        if self._held is None or self._held[0] != (seed, steps):
            self.hold(seed, steps, tf.constant([seed, steps], tf.int64))
        assert self._held is not None
        return self._held[1]

    def hold(self, seed: int, steps: int, done: tf.Tensor) -> None:
        """Hold what the last step of an execution gave."""
        self._held = (seed, steps), done


class LoaderSteps:
    """Goes through a loader step by step, epoch after epoch.

    Args:
        loader: a loader of this package, or what has ``plan``, ``inputs``, ``start_at``,
            ``first_step`` and ``make`` as it has. Steps begin where it stands.
        passes: how often an epoch goes through it; a loader of several epochs has its own number.
        steps_per_epoch: steps of an epoch where they are no whole passes.
    """

    def __init__(
        self, loader: Any, passes: int | None = None, steps_per_epoch: int | None = None
    ) -> None:
        """Find out how many steps there are; nothing is read yet."""
        self.loader = loader
        self._at_once = int(getattr(loader, "_epochs", 1))
        self._steps_of_a_pass: int = loader.plan(0).steps
        self.are_passes = steps_per_epoch is None
        passes = self._at_once if passes is None else passes
        self.steps = steps_per_epoch or self._steps_of_a_pass * passes
        self._pass: int | None = None
        self._inputs: Any = None
        self._left = 0
        self._read = 0  # steps of the epoch of Keras
        self._ahead: Any = None

    @property
    def make(self) -> Make:
        """What makes a step's batch."""
        make_samples = getattr(self.loader, "make_samples", None)
        made: Make = self.loader.make if make_samples is None else MadeOf(make_samples)
        return made

    @property
    def numbers(self) -> tf.data.Dataset:
        """What Keras takes in place of batches."""
        numbers = tf.data.Dataset.range(self.steps)
        return numbers if self.are_passes else numbers.repeat()

    def start_at(self, epoch: int, step: int = 0) -> None:
        """Let the next step be one of an epoch of Keras."""
        self.close()
        self._read = step
        self._pass, first = divmod(epoch * self.steps + step, self._steps_of_a_pass)
        self.loader.start_at(self._pass, first)

    def take(self, count: int) -> Iterator[tuple[Any, int]]:
        """Give what the next steps are given, and how many of them go by it.

        Steps whose order is known together are one: those that follow the first have the next
        numbers.
        """
        while count:
            first = self._next()
            steps = 1
            while steps < count and self._left_of_pass:  # of another pass, none would follow it
                following = self._next()
                if not _follows(first, following):
                    self._ahead = following
                    break
                steps += 1
            yield first, steps
            count -= steps

    def close(self) -> None:
        """End the reading ahead."""
        inputs, self._inputs, self._ahead, self._left = self._inputs, None, None, 0
        if inputs is not None:
            inputs.close()

    @property
    def _left_of_pass(self) -> int:
        """Steps of the pass that the last step was of."""
        return self._left % (self._steps_of_a_pass * self._at_once)

    def _next(self) -> Any:
        if self._ahead is not None:
            given, self._ahead = self._ahead, None
            return given
        given = next(self._inputs or self._begin_pass())
        self._left -= 1
        self._read = (self._read + 1) % self.steps
        if not self._left:
            self._end_pass()
            if self._read:  # the epoch goes on: the next pass is prepared while this one's end runs
                self._begin_pass()
        return given

    def _begin_pass(self) -> Any:
        self._inputs = inputs = self.loader.inputs()
        self._left = self._steps_of_a_pass * self._at_once - self.loader.first_step
        return inputs

    def _end_pass(self) -> None:
        next(self._inputs, None)  # there is none: the loader moves on to its next epoch
        self._inputs = None
        if self._pass is not None:
            self._pass += self._at_once
            self.loader.start_at(self._pass)


def nth(given: Any, number: tf.Tensor) -> Any:
    """Return what the step is given that is so many behind another, whose order is known with it.

    Anything but a loader's :class:`~merlin_sim.dataloader.loader.Step` is a step by itself.
    """
    return given._replace(number=given.number + number) if isinstance(given, Step) else given


def _follows(first: Any, other: Any) -> bool:
    alike = isinstance(first, Step) and isinstance(other, Step)
    return alike and first.order is other.order and first.data is other.data
