"""What scores cost: processor seconds and memory of each model, by length of the history.

    .venv/bin/python benchmarks/bench_costs.py [--lengths 100,1000,10000] [--rounds 5]

One user with a full history and 1,000 candidates, at random weights and tables of the published
size, in a process that scores and nothing else. docs/quality.md shows the record, which
`MERLIN_SIM_RECORDS=benchmarks/records/quality` in front of the command keeps.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from bench_candidates import make_event, make_servable
from measuring.quality_models import MODELS, PRICED
from measuring.records import Recording

from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.signatures import one_user_batch
from merlin_sim.training.runs.affinity import choose_threads

CANDIDATES = 1000


def score(servable: Path, history: int, rounds: int) -> None:
    """Print the processor seconds of each round, and the most memory that this process had."""
    choose_threads()
    scorer = Scorer(Servable.open(servable))
    batch = one_user_batch(make_event(CANDIDATES, history), scorer.columns)
    scorer.score_candidates(batch)
    seconds = []
    for _ in range(rounds):
        before = time.process_time()
        scorer.score_candidates(batch)
        seconds.append(time.process_time() - before)
    (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    print(json.dumps({"processor s": seconds, "GB": [int(peak) / 2**20]}))


def main() -> None:
    """Measure, print, and keep a record where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", default="100", help="of histories")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--score", type=Path, help="score with a servable; the process measured")
    options = parser.parse_args()
    lengths = [int(length) for length in options.lengths.split(",")]
    if options.score:
        score(options.score, lengths[0], options.rounds)
        return
    settings = {"candidates": CANDIDATES, "embedding_dim": 16, "rounds": options.rounds}
    recording = Recording("costs", "Cost of scores by length of the history", settings)
    for length in lengths:
        found: dict[str, dict[str, list[float]]] = {"processor s": {}, "GB": {}}
        for name in PRICED:
            model = MODELS[name]
            with tempfile.TemporaryDirectory() as folder:
                make_servable(Path(folder), model.family, length, **model.options)
                words = [sys.executable, __file__, "--score", Path(folder) / "servable"]
                words += ["--lengths", length, "--rounds", options.rounds]
                ended = subprocess.run(
                    [*map(str, words)], stdout=subprocess.PIPE, text=True, check=True
                )
            for unit, values in json.loads(ended.stdout.splitlines()[-1]).items():
                found[unit][name] = values
        recording.table(f"a thousand scores at {length}", "processor s", found["processor s"])
        recording.table(f"memory at {length}", "GB", found["GB"])
    recording.end()


if __name__ == "__main__":
    main()
