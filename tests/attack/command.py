"""The attack's command line: which cases, how many, and what is printed of them."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from .campaign import Campaign, Family, Limits
from .command_share import CommandFamily
from .datasets.dataset_family import DatasetFamily
from .datasets.layouts import LayoutFamily
from .days.family import DayFamily
from .logs.click_logs import ClickLogFamily
from .logs.labelled_logs import LabelledLogFamily
from .logs.raw_logs import LogFamily
from .report import failures_text, table_text
from .runs.checkpoints import CheckpointFamily
from .runs.kills import KILLS_PER_CHAIN, KillFamily
from .serving import good_servable
from .serving.click_requests import ClickRequestFamily
from .serving.good_files import GoodFilesFamily
from .serving.requests import RequestFamily
from .serving.server_requests import ServerFamily
from .transcoding.chunk_sources import ChunkSourceFamily
from .transcoding.split_binary import SplitBinaryFamily
from .transcoding.transcodes import TranscodeFamily
from .worker import SPAWN

SHARES = {
    **{"parquet": 0.2, "spec": 0.08, "users": 0.12, "clicks": 0.1, "featured": 0.06},
    "split_binary": 0.06,
    **{"checkpoints": 0.06, "click logs": 0.03, "requests": 0.04},
    **{"servables": 0.02, "fitted state": 0.02, "click servables": 0.02, "fitted clicks": 0.02},
    **{"click requests": 0.03, "labelled logs": 0.03, "days": 0.05, "transcode": 0.04},
    **{"chunk sources": 0.04, "raw logs": 0.02},
}
"""Family -> its share of the mutations."""

COMMANDS = 150
"""Of so many mutations one more is tried through the real command."""

PER_SERVER = 5000
"""For so many mutations one server of each kind is started; it gets hundreds of requests."""

SERVERS = ["server", "click server"]

CHAINS = {"one rank": 0.6, "two ranks": 0.25, "one of two ranks": 0.15}
"""Way of killing -> its share of the kills."""

SERVED = [
    "requests",
    "click requests",
    "servables",
    "fitted state",
    "click servables",
    "fitted clicks",
]
FED = ["parquet", "spec", "users", "clicks", "featured"]
FITTED = ("workflow.json", "categories")
NVTABULARS = ["raw logs", "labelled logs", "days", "click logs"]
GROUPS = [
    # Kills come first: they fork runs, which must not find TensorFlow started.
    (Limits(seconds=3600, room=None, shrinks=False), list(CHAINS)),
    # NVTabular waits for ever in a forked process.
    (Limits(seconds=240, start=SPAWN, shrinks=False), NVTABULARS),
    (Limits(seconds=600, room=None, shrinks=False), ["command line", *SERVERS]),
    (Limits(), [*FED, "split_binary", "transcode", "chunk sources", "checkpoints", *SERVED]),
    (Limits(seconds=300), ["layouts"]),
]
"""Families that can be judged by the same workers."""


def make_families() -> dict[str, Family]:
    """All families of cases."""
    found: list[Family] = [
        *(KillFamily(way) for way in CHAINS),
        *(DatasetFamily(name) for name in FED),
        SplitBinaryFamily(),
        TranscodeFamily(),
        ChunkSourceFamily(),
        CheckpointFamily(),
        LogFamily(),
        LabelledLogFamily(),
        DayFamily(),
        ClickLogFamily(),
        RequestFamily(),
        ClickRequestFamily(),
        GoodFilesFamily("servables", "servable", ()),
        GoodFilesFamily("fitted state", "dataset", FITTED),
        GoodFilesFamily("click servables", "click servable", ()),
        GoodFilesFamily("fitted clicks", "click dataset", FITTED),
        LayoutFamily(),
        CommandFamily(),
        ServerFamily("server", "servable"),
        ServerFamily("click server", "click servable"),
    ]
    return {family.name: family for family in found}


def main() -> int:
    """Run; 1 where anything failed."""
    options = _options()
    good_servable.MADE.extend([options.good] if options.good else [])
    families = make_families()
    chosen = options.only.split(",") if options.only else list(families)
    wanted = _numbers(options, chosen)
    started = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    campaigns = []
    try:
        for limits, names in GROUPS:
            mine = {name: families[name] for name in names if wanted.get(name)}
            if mine:
                campaigns.append(Campaign(mine, options.seed, options.workers, limits))
                campaigns[-1].run({name: wanted[name] for name in mine}, _say)
    except KeyboardInterrupt:
        _say("interrupted: what was found so far follows")
    for campaign in campaigns:
        print(failures_text(campaign))
    tallies = {name: tally for campaign in campaigns for name, tally in campaign.tallies.items()}
    print(table_text(tallies, time.monotonic() - started))
    return int(any(tally.failures for tally in tallies.values()))


def _numbers(options: argparse.Namespace, chosen: list[str]) -> dict[str, list[int]]:
    if options.case is not None:
        numbers = [int(number) for number in options.case.split(",")]
        return dict.fromkeys(chosen, numbers)
    counts = {"layouts": float(options.layouts), "command line": options.mutations / COMMANDS}
    counts |= dict.fromkeys(SERVERS, options.mutations / PER_SERVER)
    for total, shares in ((options.mutations, SHARES), (options.kills / KILLS_PER_CHAIN, CHAINS)):
        whole = sum(shares[name] for name in chosen if name in shares) or 1
        counts |= {name: total * share / whole for name, share in shares.items()}
    return {name: list(range(round(counts[name]))) for name in chosen}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument("--mutations", type=int, default=10_000, help="mutated inputs")
    parser.add_argument("--layouts", type=int, default=200, help="layouts over ranks")
    parser.add_argument("--kills", type=int, default=100, help="kills, five to a chain")
    parser.add_argument("--only", default="", help="families, between commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", help="these cases alone, between commas, with --only")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--good", type=Path, help="good servables that good_servable.py made")
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
