"""The attack's small share in the suite, and whether the attack finds planted faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from attack.outcome import Outcome
from attack.plan import Mutation, Plan
from attack.worker import run_all

TESTS = Path(__file__).parents[1]


FORKED = [
    *("parquet", "spec", "users", "clicks", "featured", "split_binary", "transcode"),
    "chunk sources",
    *("checkpoints", "requests", "click requests"),
    *("servables", "fitted state", "click servables", "fitted clicks", "layouts"),
]


@pytest.mark.slow
def test_a_share_of_the_attack_finds_nothing(tmp_path):
    """What is attacked is made here, where everything is imported."""
    from attack.serving import good_servable

    good_servable.make(tmp_path)
    words = ["--mutations", "56", "--layouts", "4", "--seed", "7", "--workers", "1"]
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    only = ["--only", ",".join(FORKED), "--good", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "attack", *words, *only],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["raw logs", "labelled logs", "days", "click logs"])
def test_a_share_of_the_attack_on_logs_finds_nothing(name):
    """In this process: NVTabular waits for ever in a forked one."""
    from attack.campaign import Campaign
    from attack.command import make_families

    campaign = Campaign(make_families(), 7, 1)
    for number in range(4):
        case = campaign.case(name, number)
        outcome = campaign.families[name].judge(case.plan, lambda phase: None)
        assert not outcome.failed, (case, outcome)


def ends_badly(item, phase):
    phase("judging")
    if item == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    while item == "hang":
        time.sleep(1)
    return Outcome("read")


def test_a_crash_and_a_hang_end_one_case_alone():
    items = ["well", "crash", "well", "hang", "well"]
    found = list(run_all(ends_badly, items, workers=2, seconds=3, room=None))
    assert sorted((item, outcome.kind) for item, outcome in found) == [
        ("crash", "crash"),
        ("hang", "hang"),
        *[("well", "read")] * 3,
    ]


def test_a_plan_comes_back_from_json_and_has_smaller_ones():
    plan = Plan({"sizes": {"rows": [4, 1]}}, (Mutation("a", {"x": 1}), Mutation("b", {})))
    assert Plan.from_json(plan.to_json()) == plan
    smaller = list(plan.smaller())
    assert [each.name for each in smaller[0].mutations] == ["b"]
    assert {"sizes": {"rows": [1, 1]}} in [each.base for each in smaller]


def test_the_same_seed_and_number_make_the_same_case():
    from attack.campaign import Campaign
    from attack.command import make_families

    one, other = (Campaign(make_families(), 5, 1) for _ in range(2))
    for name in (*FORKED, "raw logs", "labelled logs", "days", "click logs"):
        assert one.case(name, 3).plan == other.case(name, 3).plan
        assert one.case(name, 3).plan != one.case(name, 4).plan


def test_a_rank_without_rows_is_a_matrix_too(tmp_path):
    from attack.datasets.draft import LISTS, LONGEST, SIZES
    from attack.datasets.laid_out import Laid

    empty = {name: np.empty((0, LONGEST) if name in LISTS else 0) for name in SIZES}
    rows = Laid(tmp_path, {}).matrix(empty)
    assert rows.shape == (0, len(SIZES) - len(LISTS) + LONGEST * len(LISTS))


def test_rows_that_are_lost_are_counted():
    from attack.datasets.layouts import _counted

    wanted = np.array([[1, 2], [1, 2], [3, 4]])
    assert _counted(np.array([[1, 2], [3, 4], [9, 9]]), wanted) == (1, 1)
    assert _counted(wanted[::-1], wanted) == (0, 0)
