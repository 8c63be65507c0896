"""What a person at a terminal hears of warnings."""

from __future__ import annotations

import warnings

import pytest

from merlin_sim.foundation.exceptions import DatasetWarning
from merlin_sim.foundation.process_wide import show_dataset_warnings


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
