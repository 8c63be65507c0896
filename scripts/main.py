"""The command line ``merlin-sim``: finds the command, prints errors as people read them."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from .. import __version__
from ..foundation.exceptions import MerlinSimError
from ..foundation.process_wide import (
    collect_less_often,
    hide_tensorflow,
    show_dataset_warnings,
    silence_third_party_noise,
)
from .options.lazy_group import LazyGroup

PREPROCESS = {
    "amazon-books": ("preprocess.amazon_books", "Preprocess the Amazon Books 2014 logs."),
    "log": ("preprocess.log", "Preprocess a log of your own: CSV or parquet FILES."),
    "criteo": ("preprocess.criteo", "Preprocess click logs as Criteo's."),
}
DATA = {
    "synthesize": ("data.synthesize", "Write synthetic raw logs with planted behaviour."),
    "transcode": ("data.transcode", "Bring datasets of any form to a dataset directory."),
    "check": ("data.check", "Look through a dataset for what would spoil training."),
    "spec": ("data.spec", "Validate, show, convert and adopt dataset specifications."),
}
COMMANDS = {
    "preprocess": (PREPROCESS, "Turn raw logs of behaviour or clicks into a dataset directory."),
    "data": (
        DATA,
        "Synthesize, transcode, check and describe datasets; `preprocess` makes them of logs.",
    ),
    "plan": ("plan", "Show where the tables of a model would be, and what that costs."),
    "train": ("train", "Train a model on a dataset directory."),
    "inference": ("inference", "Score test data, or measure throughput."),
    "study": ("study", "Run a grid or a search of trainings, and compare them."),
    "report": ("report", "Draw figures of one or several runs."),
    "search-report": ("search_report", "Measure the search stage of a trained model."),
    "export": ("serving.export", "Write a trained model as a directory that can be served."),
    "score": ("serving.score", "Score raw events with an exported model."),
    "serve": ("serving.serve", "Answer requests: a Triton Inference Server on an exported model."),
    "histories": (
        "serving.histories",
        "Keep users' histories, so that requests need not bring them.",
    ),
    "index": ("retrieval.index", "Make the index of a two-tower model's items."),
    "recommend": ("retrieval.recommend", "Recommend items to users."),
    "recommend-report": (
        "retrieval.recommend_report",
        "Measure recommendations on held-out interactions.",
    ),
    "gate": ("deployment.gate", "Check that a model is not worse than the one that is served."),
    "drift": ("deployment.drift", "Compare a dataset with an older one, feature by feature."),
    "registry": ("deployment.registry", "Keep exported models, and say which one is served."),
    "doctor": ("doctor", "Show versions and devices; fail where training could not run."),
}


DEBUG = "--debug"
HINT = f" `{DEBUG}` shows the traceback."


@click.group(
    cls=LazyGroup, files=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="merlin-sim")
@click.option(
    DEBUG,
    is_flag=True,
    expose_value=False,
    help="Show the traceback of an error, too. May stand after the command.",
)
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="PACKAGE.MODULE",
    help="Import a module first that registers operators of your own (ops.register), which saved "
    "workflows may name then. May be given several times.",
)
def cli(modules: Sequence[str]) -> None:
    """Train and serve click-through-rate models: SIM on lifelong behaviour, DLRM on plain rows."""
    if modules:
        from ..workflows.ops.registry import import_operators

        import_operators(modules)


def main() -> None:
    """Run the command line; a :class:`MerlinSimError` becomes its message and exit code."""
    collect_less_often()
    silence_third_party_noise()
    show_dataset_warnings()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows its number instead.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments, debug = _without_debug(sys.argv[1:])
    if arguments[:2] == ["preprocess", "criteo"] or arguments[:1] == ["serve"]:
        hide_tensorflow()
    try:
        cli.main(arguments, standalone_mode=True)
    except MerlinSimError as error:
        _end(str(error), error.exit_code, debug)
    except RecursionError as error:
        what = "the input is nested too deeply, or this is a fault of merlin-sim"
        _end(f"{what} (RecursionError: {error}).{'' if debug else HINT}", 2, debug)
    except MemoryError as error:
        _end(f"out of memory (MemoryError: {error}).{'' if debug else HINT}", 2, debug)
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # `merlin-sim ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        _end(f"{error}.{'' if debug else HINT}", 2, debug)


def _without_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Take the option --debug out of a command line, wherever it stands before ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [argument for argument in arguments[:end] if argument != DEBUG]
    return [*options, *arguments[end:]], len(options) < end


def _end(message: str, exit_code: int, debug: bool) -> NoReturn:
    """Print an error as one message, below its traceback where that is asked for."""
    if debug:
        traceback.print_exc()
    click.echo(f"merlin-sim: {message}", err=True)
    sys.exit(exit_code)
