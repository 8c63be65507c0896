"""`preprocess log` as a person runs it, on the log of a module."""

from __future__ import annotations

import pytest

COLUMNS = ("--user_column", "who", "--item_column", "what", "--timestamp_column", "when")


@pytest.fixture(scope="module")
def run(run_cli, files, log_options):
    """Runs it into a directory of `files`, with the `log_options` unless by `--fitted`."""

    def run(output, *more, log="log.parquet"):
        given = () if "--fitted" in more else (*COLUMNS, *log_options)
        return run_cli(
            "preprocess", "log", files / log, "--output_path", files / output, *given, *more
        )

    return run
