"""Runs of the two towers: what they count before training, and that they resume to the bit."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from processes import losses
from small_runs import TWO_TOWER

from merlin_sim.models.towers import TwoTowerModel
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.runs.run import run


@pytest.mark.slow
def test_items_are_counted_and_a_resume_is_exact(
    small_run, sim_dataset, tmp_path, monkeypatch, capfd
):
    counted = []
    take = TwoTowerModel.take_target_counts
    monkeypatch.setattr(
        TwoTowerModel, "take_target_counts", lambda self, n: (counted.append(n), take(self, n))
    )
    options = {"model_type": "two_tower", "model_options": TWO_TOWER}
    options |= {"optimizer": "lazy_adam", "amp": True, "global_batch_size": 100, "epochs": 1}
    options |= {"checkpoint_every": 2}
    result = run(small_run(**options, save_checkpoint_path=tmp_path / "saved"))
    assert "no GPU: --amp computes float16 in software" in capfd.readouterr().out
    assert result["test_auc"] > 0 and "test_log_loss" not in result
    expected = losses(tmp_path / "results")
    again = {"results_dir": tmp_path / "again", "save_checkpoint_path": tmp_path / "saved again"}
    middle = tmp_path / "saved/step-0000000002"
    run(small_run(**options, **again, load_checkpoint_path=middle))
    assert losses(tmp_path / "again") == {step: expected[step] for step in expected if step > 2}
    last = max(path.name for path in (tmp_path / "saved").iterdir())
    arrays, others = (
        np.load(tmp_path / name / last / "arrays.npz") for name in ("saved", "saved again")
    )
    assert arrays.files == others.files
    assert all(arrays[name].tobytes() == others[name].tobytes() for name in arrays.files)

    dataset = DatasetDirectory.open(sim_dataset)
    item = dataset.channels["target_item_features"][0]
    stored = [np.asarray(pq.read_table(f)[item]) for f in dataset.stored_files("train")]
    for counts in counted:
        cardinality = dataset.schema[item].int_domain.max
        wanted = np.bincount(np.concatenate(stored), minlength=cardinality + 1)
        np.testing.assert_array_equal(counts, wanted)
    assert len(counted) == 2
