"""A dataset in a form that the feed does not read is brought to parquet before anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from ...foundation.exceptions import MerlinSimError, Stopped
from ...foundation.ranks import local_rank
from ...parallel.ranks.interruption import signals_wait, sigterm_interrupts
from ...schemas import SPEC_FILE
from ...schemas.channels import ChannelContract
from ...schemas.spec_file import read_feature_spec, read_spec
from ...workflows.transcoding.parquet_cache import (
    is_fed_as_it_is,
    older_caches,
    parquet_cache,
    types_of,
)

MERLIN_SIM = "from merlin_sim.scripts.main import main; main()"
STOPPED_WITHIN = 5.0
"""Seconds that a transcoding has to end when it was asked to."""


def readable_dataset(
    directory: Path, feature_spec: str, contract: ChannelContract | None = None
) -> tuple[Path, str]:
    """Return the directory and the name of its spec that the feed reads.

    Chunks of csv, tfrecord or split_binary, and several chunks, are transcoded the first time, into
    a cache beside them; its name says what they hold, so that other files make another cache.
    """
    if not os.path.lexists(directory / feature_spec):
        return directory, feature_spec  # what is wrong is reported where it is opened
    reading = read_feature_spec(directory / feature_spec)
    if reading.spec is None or is_fed_as_it_is(reading.spec):
        return directory, feature_spec
    spec = read_spec(directory / feature_spec)
    if contract is not None:
        contract.check(spec)
    was_made = False

    def transcode(cache: Path) -> None:
        nonlocal was_made
        was_made = True
        _say(f"{directory} is in {types_of(spec)}: it is brought to parquet once, in {cache}.")
        for older in older_caches(cache):
            _say(f"{older} is of files that have changed; nothing reads it any more.")
        _transcode(directory, feature_spec, cache)

    cache = parquet_cache(directory, feature_spec, spec, transcode)
    if not was_made and local_rank().rank == 0:
        _say(f"{directory} is read from {cache}.")
    return cache, SPEC_FILE


def _say(sentence: str) -> None:
    click.echo(f"merlin-sim: {sentence}", err=True)


def _transcode(directory: Path, feature_spec: str, cache: Path) -> None:
    """Run `merlin-sim data transcode` in a process of its own, before any setting of the run."""
    words = ["--input", str(directory), "--feature_spec", feature_spec, "--output", str(cache)]
    command = [sys.executable, "-c", MERLIN_SIM, "data", "transcode", *words]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    process: subprocess.Popen[bytes] | None = None
    try:
        with sigterm_interrupts():
            with signals_wait():
                # It holds the lock of the cache too.
                process = subprocess.Popen(command, env=hidden, close_fds=False)
            code = process.wait()
    except KeyboardInterrupt:
        if process is not None:
            _end(process)
        raise Stopped(f"{directory}: stopped on request; no cache was made.") from None
    if code:
        raise MerlinSimError(
            f"{directory} was not brought to parquet: `merlin-sim data transcode` ended with "
            f"{code}."
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOPPED_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
