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
            "preprocess", "log", files / log, "--output_path", files / output, "--overwrite",
            *given, *more,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def make(run, files):
    """The same; gives the dataset and what the command printed."""

    def make(output, *more, log="log.parquet"):
        result = run(output, *more, log=log)
        assert result.exit_code == 0, result.output
        return files / output, result.output

    return make


@pytest.fixture(scope="module")
def refuse(run, files):
    """The same, where it is refused: gives what it said."""

    def refuse(*more, log="log.parquet"):
        result = run("refused", *more, log=log)
        assert result.exit_code != 0
        assert not (files / "refused").exists()
        return f"{result.exception} {result.output}"

    return refuse
