"""What the command line says of errors and warnings, and what --debug shows beside it."""

from __future__ import annotations

import errno
import warnings

import pytest
from in_process import answer

from merlin_sim.foundation.exceptions import DatasetWarning, MerlinSimError
from merlin_sim.foundation.process_wide import show_dataset_warnings
from merlin_sim.scripts.commands import doctor


@pytest.fixture
def failing(monkeypatch):
    """Have `merlin-sim doctor` raise an error."""

    def fail_with(error: BaseException) -> None:
        def callback(**values):
            raise error

        monkeypatch.setattr(doctor.command, "callback", callback)

    return fail_with


EIO = OSError(errno.EIO, "Input/output error", "a/file")
OURS = MerlinSimError("`x` should be 1.")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (EIO, "Input/output error: 'a/file'"),
        (RecursionError("too deep here"), "nested too deeply, or this is a fault of merlin-sim"),
        (MemoryError("no room"), "out of memory"),
        (OURS, None),
    ],
)
def test_an_error_is_one_line_that_names_debug_unless_it_is_ours(failing, error, said):
    failing(error)
    found = answer("doctor")
    assert found.returncode == 2 and found.stdout == ""
    if said is None:
        assert found.stderr == "merlin-sim: `x` should be 1.\n"
        return
    assert found.stderr.startswith("merlin-sim: ") and found.stderr.count("\n") == 1
    assert said in found.stderr and str(error) in found.stderr and "--debug" in found.stderr


@pytest.mark.parametrize("arguments", [("--debug", "doctor"), ("doctor", "--debug")])
@pytest.mark.parametrize("error", [EIO, OURS])
def test_debug_shows_the_traceback_before_or_after_the_command(failing, error, arguments):
    failing(error)
    found = answer(*arguments)
    assert found.returncode == 2
    assert "Traceback (most recent call last)" in found.stderr
    assert "in callback" in found.stderr
    *_, last = found.stderr.splitlines()
    assert last.startswith("merlin-sim: ") and str(error) in last and "--debug" not in last
    found = answer("doctor", "--", "--debug")  # an argument, not the option
    assert found.returncode == 2 and "unexpected extra argument" in found.stderr


@pytest.mark.parametrize(("rank", "said"), [(None, True), ("0", True), ("1", False)])
def test_a_dataset_warning_is_a_sentence_on_the_first_rank(rank, said, monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", lambda *_: print("as Python shows it"))
    if rank is None:
        monkeypatch.delenv("HOROVOD_RANK", raising=False)
    else:
        monkeypatch.setenv("HOROVOD_RANK", rank)
    show_dataset_warnings()
    for _ in range(2):  # of a dataset that is opened twice
        warnings.showwarning(DatasetWarning("a.parquet: odd"), DatasetWarning, "file.py", 3)
    warnings.showwarning(UserWarning("another"), UserWarning, "file.py", 3)
    output = capsys.readouterr()
    assert output.err == ("merlin-sim: warning: a.parquet: odd\n" if said else "")
    assert output.out == "as Python shows it\n"
