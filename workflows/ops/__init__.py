"""Operators for anyone's ``nvtabular.Workflow``, beside NVTabular's own.

from merlin_sim import ops

ids = ["user", "item"] >> ops.Categorify()
rows = ids + ["time"] >> ops.GroupHistories(user="user", item="item", order="time")
"""

from .categorify import Categorify
from .fill_as_of import FillAsOf
from .group_histories import GroupHistories
from .log_numbers import LogNumbers
from .numbers import QuantileBuckets, SplitKeys
from .registry import register
from .splits import ByTime, ByUsers, LastInteraction

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
    "register",
]
