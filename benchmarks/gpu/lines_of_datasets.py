"""Lines of the table that make datasets of their own: preprocessing, AMP's AUC, clicks."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

from bench_preprocess import AMAZON
from gpu.measured_runs import PRECISIONS, PROGRAM, ROWS, entries, measured, run

USERS = int(os.environ.get("GPU_TABLE_USERS", 100_000))
MOST_LOST = 0.001
"""Of FP32's AUC, with AMP."""
DEMO = "--users 2500 --items 2000 --categories 20 --interests 3 --long_term 0.6".split()
DEMO += "--short_term 0.2 --seed 1".split()
"""The logs of scripts/demo.sh."""


def click_lines(root: Path):
    """DLRM and DCNv2 on logs of Criteo's form."""

    def figures(model: str, precision: tuple[str, ...]) -> str:
        if not (root / "clicks").exists():
            made = ("--days", 4, "--rows_per_day", ROWS, "--most_keys", 1_000_000)
            run(PROGRAM, "data", "synthesize", "criteo", "--output", root / "days", *made)
            words = (PROGRAM, "preprocess", "criteo", "--criteo_path", root / "days")
            run(*words, "--output_path", root / "clicks", "--frequency_threshold", 1)
        own = ("--model_type", model, "--optimizer", "sgd", "--embedding_dim", "128")
        return measured("train", root / "clicks", 65536, (*precision, *own))

    for model, precision in itertools.product(
        ("dlrm", "dcnv2"), (("--tf32",), ("--amp",), ("--amp", "--xla"))
    ):
        named = " + ".join(word.strip("-").upper() for word in precision)
        yield (
            f"{model.upper()} training, 65,536, {named}",
            lambda model=model, precision=precision: figures(model, precision),
        )


def precision_line(root: Path):
    """AUC with AMP beside FP32, trained as `make demo` trains, from its logs."""

    def figures() -> str:
        preprocess(root, "demo", *DEMO, layout="users")
        aucs = {}
        for precision in ("FP32", "AMP"):
            with tempfile.TemporaryDirectory() as results:
                words = (PROGRAM, "train", "--dataset_dir", root / "demo", "--results_dir", results)
                words += ("--global_batch_size", 1024, "--epochs", 2, "--seed", 1)
                run(*words, *PRECISIONS[precision])
                aucs[precision] = entries(Path(results), "result")[-1]["test_auc"]
        difference = aucs["AMP"] - aucs["FP32"]
        judged = "within" if abs(difference) <= MOST_LOST else "not within"
        return (
            f"{aucs['AMP']:.4f}, FP32 {aucs['FP32']:.4f} "
            f"(difference {difference:+.4f}, {judged} {MOST_LOST})"
        )

    yield "test AUC with AMP, on the demo's logs", figures


def preprocess(
    root: Path, folder: str, *size: object, layout: str = "samples", **variables: str
) -> float:
    """Preprocess synthetic logs of Amazon Books' form, and return the seconds."""
    raw = root / f"raw of {' '.join(map(str, size))}"
    if not raw.exists():
        run(PROGRAM, "data", "synthesize", "--output", raw, *size)
    words = (PROGRAM, "preprocess", "amazon-books", "--amazon_dataset_path", raw)
    return run(
        *words, "--output_path", root / folder, "--overwrite", "--layout", layout, **variables
    )


def preprocessing_lines(root: Path):
    """Preprocessing on GPU and CPU, of some users and of as many as Amazon Books has."""
    sizes = {f"{USERS:,} users": ("--users", USERS), "Amazon Books' size": AMAZON}
    devices = {"GPU": {}, "CPU": {"CUDA_VISIBLE_DEVICES": ""}}
    for (named, size), (device, variables) in itertools.product(sizes.items(), devices.items()):
        yield (
            f"preprocessing, {named}, {device}",
            lambda size=size, variables=variables: (
                f"{preprocess(root, 'preprocessed', *size, **variables):.1f} s"
            ),
        )
