"""Days of a world whose changes are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from in_process import answer

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.synthetic.click_days import (
    SECONDS,
    DriftingWorld,
    draw_days,
    write_days,
)

WORLD = DriftingWorld(users=500, items=300, categories=20, shown=8, turnover=0.1, seed=3)


def test_a_share_of_users_and_items_is_new_each_day_and_none_comes_back():
    days = list(draw_days(WORLD, 6))
    for name, there in (("user", 500), ("item", 300)):
        largest = [int(getattr(day, name).max()) for day in days]
        assert largest[0] < there
        grown = np.diff(largest)
        assert (grown > 0).all() and abs(grown.mean() / there - 0.1) < 0.03
    users = [set(day.user) for day in days]
    assert not (users[0] - users[1]) & users[2]
    assert all(len(found) == 500 for found in users)
    categories = {}
    for day in days:
        for item, category in zip(day.item.tolist(), day.category.tolist(), strict=True):
            assert categories.setdefault(item, category) == category


def test_a_world_without_drift_stays_as_it_is():
    days = list(draw_days(DriftingWorld(users=200, items=100, turnover=0.0), 3))
    chances = [dict(zip(zip(d.user, d.item, strict=True), d.chance, strict=True)) for d in days]
    shared = set(chances[0]) & set(chances[2])
    assert len(shared) > 50
    assert all(chances[0][pair] == chances[2][pair] for pair in shared)
    assert max(days[2].user) < 200 and max(days[2].item) < 100


def test_clicks_come_as_often_as_their_chance_says():
    (day,) = draw_days(DriftingWorld(users=5000, items=500), 1)
    for low, high in ((0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1)):
        of = (day.chance >= low) & (day.chance < high)
        assert of.sum() > 500
        assert day.clicked[of].mean() == pytest.approx(day.chance[of].mean(), abs=0.02)
    assert (np.diff(day.seconds) >= 0).all() and day.seconds.max() < SECONDS


def test_files_are_logs_and_the_same_seed_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        rates = write_days(tmp_path / name, WORLD, 2)
    files = sorted((tmp_path / "one").iterdir())
    assert [file.name for file in files] == ["day_00.csv", "day_01.csv"]
    for file in files:
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()
    frame = pd.read_csv(files[1])
    assert list(frame) == ["user", "item", "category", "time", "clicked"]
    assert len(frame) == 4000 and frame["clicked"].mean() == pytest.approx(rates[1])
    assert frame["time"].between(SECONDS, 2 * SECONDS).all()


def test_the_command_writes_them_and_refuses_what_cannot_be(tmp_path):
    small = ["--users", 20, "--items", 60, "--shown", 3]
    found = answer(
        "data", "synthesize", "days", "--output", tmp_path / "days", "--days", 11, *small
    )
    assert found.returncode == 0 and "660 rows of 11 days" in found.stdout
    assert len(list((tmp_path / "days").glob("day_*.csv"))) == 11
    found = answer("data", "synthesize", "days", "--output", tmp_path / "no", "--days", 0, *small)
    assert found.returncode == 2 and "`days` should be a positive integer" in found.stderr
    with pytest.raises(MerlinSimError) as raised:
        DriftingWorld(users=0, items=10, turnover=2)
    problems = str(raised.value).splitlines()
    assert [problem.partition(". ")[0] for problem in problems] == [
        "`users` should be a positive integer",
        "`turnover` should be 0 or more, at most 1",
        "`items` should be as many as `categories` or more",
    ]
    assert not (tmp_path / "no").exists()
