from __future__ import annotations

import pytest
import yaml

from merlin_sim.foundation.exceptions import MerlinSimError, SpecError
from merlin_sim.training.studies.study_file import Range, read_study
from merlin_sim.training.studies.trial import folder_of, grid_of

WHOLE = {"datasets": {"books": "data/books"}}


def read(tmp_path, **content):
    path = tmp_path / "question.yaml"
    path.write_text(yaml.safe_dump({**WHOLE, **content}))
    return read_study(path)


def test_what_a_file_says_is_read(tmp_path):
    study = read(tmp_path)
    assert study.title == "question" and study.seeds == (1,) and study.command == "train"
    assert grid_of(study) == [{}]
    grid = {"amp": [False, True], "stage_two_mlp_dims": [[8, 4], [8]]}
    study = read(tmp_path, seeds=3, grid=grid)
    assert study.seeds == (1, 2, 3)
    every = [(False, "8,4"), (False, "8"), (True, "8,4"), (True, "8")]
    assert [tuple(setting.values()) for setting in grid_of(study)] == every
    space = {"lr": {"low": 0.001, "high": 0.1, "log": True}, "epochs": [1, 2]}
    search = read(tmp_path, search={"trials": 5, "space": space, "prune": False}).search
    assert search.space == {"lr": Range(0.001, 0.1, True), "epochs": (1, 2)}
    assert search.trials == 5 and not search.prune


def search_of(trials=1, **space):
    return {"search": {"trials": trials, "space": space}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"epoks": 3}, "epoks: expected one of title, command"),
        ({"datasets": {}}, "datasets: expected at least one, got none"),
        ({"datasets": {"a b": "x"}}, "datasets.a b: expected a name of letters"),
        ({"seeds": 0}, "seeds: expected a positive number of them"),
        ({"seeds": [1, 1]}, "a list of different ones, got the list"),
        ({"command": "serve"}, "command: expected train or inference, got serve"),
        ({"grid": {}}, "grid: expected at least one option with its values, got none"),
        ({"grid": {"lr": []}}, "grid.lr: expected a list of at least one value, got an empty list"),
        ({"grid": {"lr": [0.1, 0.1]}}, "grid.lr: expected different values"),
        ({"options": [1]}, "options: expected names with values, got the list"),
        ({"options": {"lr": 1}, "grid": {"lr": [1]}}, "options.lr: expected an option that is not"),
        ({"measures": ["auc"]}, "measures: expected a list of test_auc"),
        ({"seeds": None}, "seeds: expected a positive number of them, or a list, got nothing"),
        ({"reference": {"lr": 1}}, "reference.lr: expected a value of the grid"),
        ({"checkpoints": "no"}, "checkpoints: expected true or false"),
        ({"grid": {"lr": [1]}, "search": {"trials": 1, "space": {"lr": [2]}}}, "got both"),
        ({"search": {"trials": 2}}, "search.space: expected options, each with"),
        ({"search": {"space": {"lr": [1]}}}, "search.trials: expected a whole number of at least"),
        (search_of(lr={"low": 2, "high": 1}), "low and high, numbers"),
        (search_of(lr={"low": 0, "high": 1, "log": True}), "space.lr.log: expected a low above 0"),
        (search_of(lr={"low": 0.1, "high": float("inf")}), "space.lr: expected low and high, numb"),
        (search_of(n={"low": 1, "high": 3, "step": 0.5}), "space.n.step: expected a whole number"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, content, said):
    with pytest.raises(SpecError) as error:
        read(tmp_path, **content)
    assert said in str(error.value)


def test_everything_wrong_is_said_at_once_and_other_files_are_refused(tmp_path):
    with pytest.raises(SpecError) as error:
        read(tmp_path, seeds=0, epoks=1, grid={})
    assert len(error.value.problems) == 3
    path = tmp_path / "study.yaml"
    for text in ("", "- 1", "a: {", "[" * 3000):
        path.write_text(text)
        with pytest.raises(MerlinSimError, match=r"study\.yaml"):
            read_study(path)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("grid: {lr: [1]}\ngrid: {lr: [2]}", "study.yaml:3: grid"),
        ("search: {trials: 2, space: {lr: [1], lr: [2]}}", "study.yaml:2: search.space.lr"),
    ],
)
def test_what_stands_twice_is_refused_with_its_line(text, key, tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(f"datasets: {{a: b}}\n{text}")
    with pytest.raises(SpecError, match=f"{key}: expected each key once"):
        read_study(path)


def test_the_folders_of_settings_differ_as_they_do():
    assert folder_of({"stage_two_mlp_dims": "8,4"}) == "stage_two_mlp_dims-8,4"
    slashed, dashed = folder_of({"model_type": "a/b:C"}), folder_of({"model_type": "a-b-C"})
    assert slashed != dashed and "/" not in slashed
    assert len(folder_of({f"option_{n}": n for n in range(50)})) < 100
