"""Which version a server is given, whatever Triton says of it."""

from __future__ import annotations

import shutil

import pytest
from hollow_servable import write_hollow_servable

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.serving.triton.generations import Generations
from merlin_sim.serving.triton.succession import MOST_ENDS, PERIOD, Succession, Wanted

MODELS = ("ids", "events")
PATIENCE = 100.0


class World:
    """A registry, a server and a clock that do what a test says."""

    def __init__(self, directory) -> None:
        self.servables = {
            number: write_hollow_servable(directory / str(number), str(number))
            for number in (1, 2, 3)
        }
        self.current = 1
        self.states = {}
        self.said = []
        self.time = 0.0
        self.generations = Generations(directory, MODELS)
        self.succession = Succession(
            self.wanted,
            self.generations,
            self.write,
            lambda: dict(self.states),
            MODELS,
            self.said.append,
            PATIENCE,
            lambda: self.time,
        )

    def wanted(self):
        if self.current is None:
            raise MerlinSimError("nothing is current")
        return Wanted(self.current, self.servables[self.current])

    def write(self, servable, wanted, canary, directory):
        for model in MODELS:
            (directory / model).mkdir()
            (directory / model / "what").write_text(f"{wanted.version} of {servable.path.name}")

    def look(self, seconds=PERIOD):
        self.time += seconds
        self.succession.look()

    def told(self):
        """What Triton finds."""
        return [(self.generations.repository / model / "what").read_text() for model in MODELS]

    def says(self, version, state, reason="", models=MODELS):
        self.states |= {(model, version): (state, reason) for model in models}

    def generations_left(self):
        return len(list((self.generations.repository.parent / "generations").glob("[0-9]*")))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_the_next_version_answers_once_all_its_models_are_ready(world):
    assert world.told() == ["1 of 1"] * 2
    world.look()
    assert not world.said
    world.current = 2
    world.look(PERIOD / 4)
    assert not world.said  # it does not look at once
    world.look()
    assert world.said == ["loading version 2; version 1 answers"]
    assert world.told() == ["2 of 2"] * 2
    world.says(2, "LOADING")
    world.look()
    world.says(2, "READY", models=["ids"])
    world.look()
    assert len(world.said) == 1 and world.succession.serving.version == 1
    world.says(2, "READY")
    world.look()
    assert world.said[1:] == ["version 2 answers, in place of 1"]
    assert world.succession.serving.version == 2 and world.generations_left() == 1
    # Back to one that Triton has let go of, which is no failure.
    world.current = 1
    world.says(1, "UNAVAILABLE", "unloaded")
    world.look()
    world.look()
    assert world.told() == ["1 of 1"] * 2 and world.said[2:] == [
        "loading version 1; version 2 answers"
    ]
    world.says(1, "READY")
    world.look()
    assert world.said[3:] == ["version 1 answers, in place of 2"]


def test_a_version_that_triton_cannot_load_is_put_back_and_not_tried_again(world):
    world.current = 2
    world.look()
    world.says(2, "READY", models=["ids"])
    world.says(2, "UNAVAILABLE", "Internal: no model", models=["events"])
    world.look()
    assert world.said[1:] == [
        "version 2 cannot be served: Internal: no model\nversion 1 goes on answering"
    ]
    assert world.told() == ["1 of 1"] * 2 and world.generations_left() == 1
    for _ in range(3):
        world.look()
    assert len(world.said) == 2
    world.current = 3  # another one is another matter
    world.look()
    world.says(3, "READY")
    world.look()
    assert world.said[-1] == "version 3 answers, in place of 1"
    # And so is the first when it is promoted again: what was said of it then does not count.
    world.current = 2
    world.look()
    world.look()
    assert world.said[-1] == "loading version 2; version 3 answers"
    world.says(2, "READY")
    world.look()
    assert world.succession.serving.version == 2


def test_a_version_that_stays_away_is_given_up(world):
    world.current = 2
    world.look()
    world.look(PATIENCE)
    assert world.said[1:] == []
    world.look()
    assert "it was not ready after 100 s" in world.said[1] and world.told() == ["1 of 1"] * 2


def test_a_server_that_ends_over_a_version_starts_again_with_the_one_before(world):
    world.succession.triton_ended()
    assert not world.said  # nothing was coming
    for version in (2, 3, 2):
        world.current = version
        for _ in range(MOST_ENDS - 1):
            world.look()
            assert world.told() == [f"{version} of {version}"] * 2
            world.succession.triton_ended()
            assert world.told() == ["1 of 1"] * 2 and "it is tried again" in world.said[-1]
    world.look()
    world.succession.triton_ended()
    assert world.said[-1].startswith("version 2 cannot be served: Triton ended 3 times while")
    said = len(world.said)
    world.look()
    assert len(world.said) == said and world.generations_left() == 1
    world.current = 3
    world.look()
    world.says(3, "READY")
    world.look()
    assert world.succession.serving.version == 3


def test_what_is_damaged_or_missing_is_told_once(world):
    (world.servables[2] / "model/saved_model.pb").write_text("other")
    shutil.rmtree(world.servables[3])
    world.current = 2
    for _ in range(3):
        world.look()
    assert len(world.said) == 1 and "expected 1 bytes, found 5" in world.said[0]
    world.current = 3
    for _ in range(3):
        world.look()
    assert len(world.said) == 2 and "version 3 cannot be served" in world.said[1]
    world.current = None
    for _ in range(3):
        world.look()
    assert world.said[2:] == ["nothing is current\nversion 1 goes on answering"]
    assert world.told() == ["1 of 1"] * 2 and world.generations_left() == 1


def test_the_first_version_has_to_be_whole(tmp_path):
    directory = tmp_path / "first"
    write_hollow_servable(directory, "a")
    (directory / "model/saved_model.pb").write_text("b")  # as long, and another
    with pytest.raises(MerlinSimError, match="not as it was exported"):
        Succession(
            lambda: Wanted(1, directory),
            Generations(tmp_path, MODELS),
            lambda servable, wanted, canary, to: None,
            dict,
            MODELS,
            lambda message: None,
            PATIENCE,
        )
