"""Which Triton answers, whatever becomes of it and of the versions that should be served."""

from __future__ import annotations

from pathlib import Path

import pytest
from held_server import until

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.serving.triton.replicas import MOST_STARTS, PAUSE_SECONDS, Replicas
from merlin_sim.serving.triton.triton_process import ServerError
from merlin_sim.serving.versions import Canary, ServedVersion


class Made:
    """A Triton that is as a test sets it."""

    is_worth_another = True

    def __init__(self, version):
        self.version = version.number
        self.is_ready = self.has_answered = False
        self.problem = self.end_of = None

    def ready(self):
        self.is_ready = True

    def breaks(self, problem="Triton ended"):
        self.problem, self.is_ready = problem, False

    def suspect(self):
        """Nothing to look at."""

    def end(self):
        self.end_of = "let go"
        return 0

    def kill(self):
        self.end_of = "killed"


class World:
    """What replicas receive, and what they report."""

    def __init__(self, has_standby=True):
        self.made, self.said, self.switched = [], [], []
        self.wanted, self.now, self.damaged = ServedVersion(Path("a"), 1), 0.0, None
        self.replicas = Replicas(
            self.current, self.make, self.switched.append, self.said.append, has_standby,
            lambda: self.now,
        )  # fmt: skip

    def current(self):
        if self.wanted is None:
            raise MerlinSimError("the registry cannot be read")
        return self.wanted

    def make(self, version):
        if version.number == self.damaged:
            raise MerlinSimError("it is damaged")
        self.made.append(Made(version))
        return self.made[-1]

    def look(self, seconds=1.0):
        self.now += seconds
        self.replicas.look()

    def load(self, name, number):
        """Have another version wanted, and looked at; gives its Triton."""
        self.wanted = ServedVersion(Path(name), number)
        self.look()
        return self.made[-1]

    def answered(self):
        """Let the newest be ready, and answer."""
        self.made[-1].ready()
        self.look()
        self.replicas.active.has_answered = True


@pytest.fixture
def world():
    found = World()
    yield found
    found.replicas.stop()
    assert all(made.end_of is not None for made in found.made)


def test_what_stands_by_answers_as_soon_as_the_first_has_ended(world):
    world.look()
    assert world.replicas.active is None and len(world.made) == 1
    world.answered()
    assert world.switched == [world.made[0]] and len(world.made) == 2
    world.made[1].ready()
    world.made[0].breaks()
    world.look()
    assert world.switched == [world.made[0], None, world.made[1]]
    assert len(world.made) == 3  # and another stands by
    assert any("the one that stands by answers" in said for said in world.said)


def test_without_one_that_stands_by_another_is_started():
    world = World(has_standby=False)
    world.answered()
    assert len(world.made) == 1
    world.made[0].breaks()
    world.look()
    assert len(world.made) == 2 and world.replicas.active is None
    world.answered()
    assert world.replicas.active is world.made[1]
    world.replicas.stop()


def test_kills_without_end_are_borne_by_one_that_answers(world):
    for _ in range(50):
        world.answered()
        world.replicas.active.breaks()
        world.look()
    assert world.replicas.active is None and world.replicas.standby is not None


def test_starts_that_fail_are_given_up(world):
    with pytest.raises(ServerError, match=f"it broke, {MOST_STARTS} times"):
        for _ in range(50):
            world.made[-1].breaks("it broke")
            world.look()
    assert len(world.made) == MOST_STARTS


def test_while_one_answers_starts_that_fail_are_put_off(world):
    world.answered()
    for _ in range(20):
        world.made[-1].breaks()
        world.look()
    assert len(world.made) == 1 + MOST_STARTS and world.replicas.active is world.made[0]
    world.look(PAUSE_SECONDS)
    assert len(world.made) == 2 + MOST_STARTS


def test_a_version_answers_when_it_is_ready_and_the_one_before_is_let_go(world):
    world.answered()
    first, standby = world.made
    second = world.load("b", 2)
    assert second.version == 2 and world.replicas.active is first
    assert standby.end_of == "killed"  # of memory two are enough
    world.look()
    assert world.replicas.active is first and len(world.made) == 3
    second.ready()
    world.look()
    assert world.replicas.active is second and world.replicas.serving.number == 2
    assert "version 2 answers, in place of 1" in world.said
    assert world.made[-1].version == 2  # another of it stands by
    until(lambda: first.end_of == "let go")


def test_a_version_that_is_damaged_or_does_not_start_changes_nothing(world):
    world.answered()
    world.damaged = 2
    world.load("b", 2)
    assert world.said[-1].startswith("version 2 cannot be served: it is damaged\nversion 1 goes on")
    reported = len(world.said)
    world.look()
    assert len(world.said) == reported and world.replicas.active.version == 1
    world.load("c", 3)
    for _ in range(MOST_STARTS):
        assert world.made[-1].version == 3
        world.made[-1].breaks("it crashes")
        world.look()
    assert world.said[-1].startswith("version 3 cannot be served: it crashes")
    assert world.replicas.active.version == 1
    world.load("a", 1)
    world.load("c", 3)
    assert world.made[-1].version == 3  # once another was wanted it is tried again


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_version_that_is_rolled_back_while_it_loads_never_answers(world, is_ready):
    world.answered()
    second = world.load("b", 2)
    world.load("a", 1)
    if is_ready:
        second.ready()
    else:
        second.breaks()
    world.look()
    assert world.switched == [world.made[0]] and world.replicas.serving.number == 1
    until(lambda: second.end_of == "killed")
    assert [made.version for made in world.made] == [1, 1, 2, 1]  # another of 1 stands by
    assert world.said[-1] == "version 2 is no longer the current one; version 1 goes on answering"


def test_a_version_that_follows_another_while_that_loads_is_loaded_next(world):
    world.answered()
    world.load("b", 2)
    world.wanted = ServedVersion(Path("c"), 3)
    world.answered()
    assert world.replicas.active.version == 1 and world.made[-1].version == 3
    world.answered()
    assert world.replicas.active.version == 3


def test_a_version_whose_canary_changes_while_it_loads_answers(world):
    world.answered()
    second = world.load("b", 2)
    world.wanted = ServedVersion(Path("b"), 2, Canary(1, 0.1), Path("a"))
    second.ready()
    world.look()
    assert world.switched[-1] is second and second.end_of is None


def test_starts_of_the_version_before_do_not_count_for_the_one_that_loads(world):
    world.answered()
    second = world.load("b", 2)
    world.made[0].breaks()
    for _ in range(MOST_STARTS):
        world.look()
        world.made[-1].breaks()
    second.breaks()
    world.look()
    assert any("version 2 is tried again" in said for said in world.said)
    assert not any("cannot be served" in said for said in world.said)


def test_a_version_that_was_wanted_answers_though_nobody_can_say_what_is_wanted_now(world):
    world.answered()
    world.load("b", 2)
    world.wanted = None
    world.answered()
    assert world.replicas.active.version == 2


def test_one_that_ends_while_another_version_is_prepared_is_started_again(world):
    world.answered()
    second = world.load("b", 2)
    world.made[0].breaks()
    world.look()
    again = world.made[-1]
    assert world.replicas.active is None and again.version == 1
    second.breaks()  # it is tried again, and the first goes on starting
    world.look()
    second = world.made[-1]
    assert second.version == 2 and again.end_of is None
    again.ready()
    world.look()
    assert world.replicas.active is again
    world.look()
    assert world.made[-1] is second  # of memory two are enough
    world.answered()
    assert world.replicas.active is second


def test_a_version_that_is_ready_before_the_one_that_ended_answers_alone(world):
    world.answered()
    second = world.load("b", 2)
    world.made[0].breaks()
    world.look()
    for _ in range(MOST_STARTS):  # nothing is given up as long as the other version loads
        world.made[-1].breaks()
        world.look()
    world.look(PAUSE_SECONDS)
    again = world.made[-1]
    assert again.version == 1 and again.problem is None
    second.ready()
    world.look()
    assert world.replicas.active is second
    until(lambda: again.end_of == "killed")
    assert world.made[-1].version == 2  # another of it stands by
