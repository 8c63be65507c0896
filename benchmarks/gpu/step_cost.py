"""What a training step costs on an H100, counted without one.

    PYTHONPATH=benchmarks .venv/bin/python benchmarks/gpu/step_cost.py --install

It compiles the whole step, from the numbers of samples to the weights, for an H100, and counts in
the optimized program what the step moves and computes, for plain rows and for users x 16
candidates, beside the published step (``published_step.json``). It ends with 1 where a bar is not
kept. These are counts, not times: they are blind to what the host does, to atomics that meet, to
how well cuBLAS does, and to what of TensorFlow 2.12's own XLA is another.

The compiler needs an environment of its own, of about 950 MB, which ``--environment`` names; with
``--install`` it is made there if it is missing. ``--counts`` needs none: it counts operations in
the program before it is optimized, in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from gpu.hlo_cost import Program  # noqa: E402

from merlin_sim.foundation.process_wide import silence_third_party_noise  # noqa: E402

silence_third_party_noise()

import tensorflow as tf  # noqa: E402
from gpu.whole_step import hlo_of, make_step, small_dataset  # noqa: E402

FOLDER = Path(__file__).parent
COMPILER = FOLDER / "compile_for_h100.py"
CACHE = Path.home() / ".cache/merlin-sim/h100-compiler"
MAKES_PUBLISHED = FOLDER / "published_step.py"
PUBLISHED = json.loads((FOLDER / "published_step.json").read_text())
PACKAGES = (
    "jax==0.4.35",
    "jaxlib==0.4.35",
    "jax-cuda12-plugin==0.4.35",
    "jax-cuda12-pjrt==0.4.35",
    "nvidia-cuda-nvcc-cu12<12.7",
    "numpy<2",
)
BATCH = 4096
FORMS = {"rows": 1, "users x 16": 16}
MOST = {
    "rows": {"bytes of published": 0.76, "product_mflop": 8.5},
    "users x 16": {"bytes of published": 0.50, "product_mflop": 5.7},
}
MOST_OF_BOTH = {"kernels": 620, "host_syncs": 0, "sorts": 0, "endless_loops": 0}
WAITING = ("sort", "topk", "while", "conditional")
"""Operations that a step has none of, before it is optimized already."""


def waiting_operations(text: str) -> dict[str, int]:
    """Count the operations that make a GPU wait, in a program that need not be optimized."""
    found = Program(text).opcodes()
    return {name: found[name] for name in (*WAITING, "scatter")}


def figures_of(text: str) -> dict[str, float]:
    """Count what an optimized program costs: bytes and products of a sample, all else of a step."""
    cost = Program(text).total()
    return {
        "bytes": round(cost.bytes / BATCH),
        "product_mflop": round(cost.product_flops / BATCH / 1e6, 2),
        "kernels": round(cost.kernels),
        "host_syncs": cost.syncs,
        "sorts": cost.sorts,
        "endless_loops": cost.endless,
    }


def broken_bars(form: str, figures: dict[str, float]) -> list[str]:
    """Name the bars that a step does not keep."""
    share = figures["bytes"] / PUBLISHED["step"]["bytes"]
    given = {**figures, "bytes of published": round(share, 4)}
    return [
        f"{form}: {name} {given[name]:,} is above {most:,}"
        for name, most in {**MOST[form], **MOST_OF_BOTH}.items()
        if given[name] > most
    ]


def programs(folder: Path) -> dict[str, str]:
    """Return the program of each form before it is optimized."""
    dataset = small_dataset(folder / "dataset")
    made = {}
    for form, candidates in FORMS.items():
        made[form] = hlo_of(*make_step(dataset, "sim", BATCH, candidates, amp=True))
    return made


def compiled(text: str, python: Path, folder: Path) -> str:
    """Compile a program for an H100."""
    source, target = folder / "program.hlo", folder / "compiled.hlo"
    source.write_text(text)
    subprocess.run([python, COMPILER, source, target], check=True)
    return target.read_text()


def compiler_python(environment: Path, install: bool) -> Path:
    """Return the Python that has the compiler; make its environment where that is asked for."""
    python = environment / "bin/python"
    if not python.exists():
        words = f"-m venv {environment} && {environment}/bin/pip install"
        if not install:
            packages = " ".join(f"'{package}'" for package in PACKAGES)
            sys.exit(
                f"step_cost: there is no compiler in {environment}. Give --install, or: "
                f"python3 {words} {packages}"
            )
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def published_figures(code: Path, python: Path, folder: Path) -> dict[str, float]:
    """Count the published step anew."""
    program = folder / "published.hlo"
    subprocess.run([sys.executable, MAKES_PUBLISHED, code, program], check=True)
    return figures_of(compiled(program.read_text(), python, folder))


def show(counted: dict[str, dict[str, float]]) -> None:
    """Print a table of all steps."""
    steps = {"published": PUBLISHED["step"], **counted}
    print("| a step, float16 | " + " | ".join(steps) + " |")
    print("|---" * (len(steps) + 1) + "|")
    for name in PUBLISHED["step"]:
        print(f"| {name} | " + " | ".join(f"{step[name]:,}" for step in steps.values()) + " |")
    shares = (f"{step['bytes'] / PUBLISHED['step']['bytes']:.3f}" for step in steps.values())
    print("| bytes of published | " + " | ".join(shares) + " |")


def main() -> None:
    """Count, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--environment", type=Path, default=CACHE, help=f"of the compiler (default: {CACHE})"
    )
    parser.add_argument("--install", action="store_true", help="make the environment")
    parser.add_argument("--counts", action="store_true", help="of programs not optimized alone")
    parser.add_argument(
        "--published",
        type=Path,
        metavar="CODE",
        help="folder of the published code, whose step is counted anew: see published_step.py",
    )
    parser.add_argument("--json", type=Path, help="where the figures go")
    given = parser.parse_args()
    python = None if given.counts else compiler_python(given.environment, given.install)
    reported: dict[str, Any] = {"tensorflow": tf.__version__, "compiler": PACKAGES, "batch": BATCH}
    with tempfile.TemporaryDirectory() as name:
        texts = programs(Path(name))
        reported["before it is optimized"] = {f: waiting_operations(t) for f, t in texts.items()}
        if python is None:
            print(json.dumps(reported["before it is optimized"], indent=2))
            broken = []
        else:
            if given.published is not None:
                PUBLISHED["step"] = published_figures(given.published, python, Path(name))
            counted = {f: figures_of(compiled(t, python, Path(name))) for f, t in texts.items()}
            broken = [line for f, found in counted.items() for line in broken_bars(f, found)]
            reported |= {"published": PUBLISHED, "steps": counted, "broken": broken}
            show(counted)
    if given.json is not None:
        given.json.write_text(json.dumps(reported, indent=2) + "\n")
    for line in broken:
        print(f"step_cost: {line}", file=sys.stderr)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
