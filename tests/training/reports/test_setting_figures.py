from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib import pyplot as plt

from merlin_sim.training.reports.run_results import RunResults
from merlin_sim.training.reports.setting_figures import _placed, draw_settings
from merlin_sim.training.statistics.settings import Setting


def setting(name, aucs, **values):
    runs = [
        RunResults(name, Path(name), [], [], {"test_auc": auc, "time_to_train": 9.0}, {}, {}, {})
        for auc in aucs
    ]
    return Setting(name, values, runs)


def test_numbers_stand_by_size_and_others_evenly():
    assert _placed([10, 30, 20])[0] == pytest.approx([0, 1, 0.5])
    assert _placed([0.001, 0.1, 0.01])[0] == pytest.approx([0, 1, 0.5])  # by their logarithm
    assert _placed([True, False, True]) == ([1.0, 0.0, 1.0], {"false": 0.0, "true": 1.0})
    assert _placed([5, 5]) == ([0.0, 0.0], {"5": 0.0})
    heights, labels = _placed([n / 99 for n in range(100)])
    assert len(heights) == 100 and 10 <= len(labels) <= 14


def test_what_there_is_to_show_is_drawn():
    three = [setting(f"t{n}", [0.7 + n / 100], lr=n, amp=n > 1) for n in range(3)]
    figures = draw_settings(three, "test_auc")
    assert set(figures) == {"spread", "cost", "parallel"}
    lines = figures["parallel"].axes[0].lines
    drawn = [line.get_ydata() for line in lines if len(line.get_ydata()) == 3]
    assert [list(line)[-1] for line in drawn] == pytest.approx([0, 0.5, 1])  # the best on top
    assert set(draw_settings(three[:1], "test_auc")) == {"cost"}
    assert draw_settings(three, "test_gauc") == {}
    plt.close("all")
