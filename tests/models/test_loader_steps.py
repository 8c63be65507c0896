"""The steps of a loader: passes follow each other without a pause, and in their order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from merlin_sim.dataloader.loader import Step
from merlin_sim.models.loader_steps import LoaderSteps

STEPS = 3
"""Of a pass."""


class Passes:
    """A loader that notes what is asked of it."""

    first_step = epoch = 0

    def __init__(self):
        self.noted = []

    def plan(self, epoch):
        return SimpleNamespace(steps=STEPS)

    def start_at(self, epoch, step=0):
        self.epoch, self.first_step = epoch, step

    def make(self, given):
        raise AssertionError("nothing is made here")

    def inputs(self):
        self.noted.append(("begun", self.epoch))
        return Reading(self.epoch, self.first_step, self.noted)


class Reading:
    def __init__(self, epoch, first, noted):
        self._epoch, self._left, self._noted = epoch, iter(range(first, STEPS)), noted
        self._order = tf.constant(epoch)

    def __next__(self):
        number = next(self._left)
        self._noted.append(("read", self._epoch, number))
        return Step("data", self._order, tf.constant(number, tf.int64))

    def close(self):
        self._noted.append(("closed", self._epoch))


def run(steps, count):
    for given, together in steps.take(count):
        epoch, first = int(given.order), int(given.number)
        steps.loader.noted += [("ran", epoch, first + number) for number in range(together)]


@pytest.mark.parametrize("at_once", [1, 2, 4, 12])
def test_a_pass_is_begun_and_not_waited_for_before_the_last_steps_run(at_once):
    steps = LoaderSteps(Passes(), steps_per_epoch=4 * STEPS)
    steps.start_at(0)
    for _ in range(4 * STEPS // at_once):
        run(steps, at_once)
    noted = steps.loader.noted
    ran = [(epoch, number) for what, epoch, *rest in noted if what == "ran" for number in rest]
    assert ran == [(epoch, number) for epoch in range(4) for number in range(STEPS)]
    for epoch in (1, 2, 3):
        last_of_before = noted.index(("ran", epoch - 1, STEPS - 1))
        assert noted.index(("begun", epoch)) < last_of_before < noted.index(("read", epoch, 0))
    assert ("begun", 4) not in noted  # Keras' epoch is over


def test_a_pass_that_was_begun_ahead_ends_with_the_steps():
    steps = LoaderSteps(Passes(), steps_per_epoch=4 * STEPS)
    for first, epoch in ((1, 0), (4, 1)):
        steps.start_at(0, first)
        run(steps, 2)
        steps.close()
        assert steps.loader.noted[-2:] == [("ran", epoch, 2), ("closed", epoch + 1)]
