"""Operators for anyone's ``nvtabular.Workflow``, beside NVTabular's own, and one such workflow.

from merlin_sim import ops

ids = ["user", "item"] >> ops.Categorify()
rows = ids + ["time"] >> ops.GroupHistories(user="user", item="item", order="time")
workflow = ops.Workflow(rows)
"""

from ..rules import ByTime, ByUsers, LastInteraction
from .categorify import Categorify
from .columns import FillAsOf, LogNumbers, QuantileBuckets, SplitKeys
from .group_histories import GroupHistories
from .registry import register
from .workflow import Workflow

__all__ = [
    "ByTime",
    "ByUsers",
    "Categorify",
    "FillAsOf",
    "GroupHistories",
    "LastInteraction",
    "LogNumbers",
    "QuantileBuckets",
    "SplitKeys",
    "Workflow",
    "register",
]
