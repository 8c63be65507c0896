"""Criteo's days as one preprocesses them with plain pandas: argv[1] the days, argv[2] the output.

Run by bench_dlrm.py as a text, so that nothing of this package is imported.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

source, output = Path(sys.argv[1]), Path(sys.argv[2])
numbers, keys = [f"num_{n}" for n in range(13)], [f"cat_{n}" for n in range(26)]
days = sorted(source.glob("day_*"), key=lambda path: int(path.name[4:]))
frames = [
    pd.read_csv(
        path,
        sep="\t",
        header=None,
        names=["label", *numbers, *keys],
        dtype=dict.fromkeys(keys, str),
    )
    for path in days
]
lengths = [len(frame) for frame in frames]
log = pd.concat(frames, ignore_index=True)
for name in numbers:
    log[name] = np.log(log[name] + 3).fillna(0).astype(np.float32)
for name in keys:
    counts = log[name].value_counts()
    kept = counts[counts >= 15].index
    ids = pd.Series(np.arange(1, len(kept) + 1, dtype=np.int32), index=kept)
    log[name] = log[name].map(ids).fillna(0).astype(np.int32)
border = sum(lengths[:-1])
half = border + lengths[-1] // 2
output.mkdir(parents=True)
for name, rows in (("train", log[:border]), ("validation", log[border:half]), ("test", log[half:])):
    rows.to_parquet(output / f"{name}.parquet", index=False)
print(f"{len(log):,} rows")
