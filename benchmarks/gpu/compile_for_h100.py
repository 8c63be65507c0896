"""Compiles a program for an H100 on a machine without one: ``step_cost.py`` runs it.

    XLA_PYTHON benchmarks/gpu/compile_for_h100.py PROGRAM.hlo COMPILED.hlo

XLA's plugin for CUDA takes a description of a GPU in the place of one, and runs everything that it
would run there, kernels' choices by measuring aside. It is no part of the product's environment:
``step_cost.py`` says what to install.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

FLAGS = (
    "--xla_gpu_autotune_level=0",  # would measure
    "--xla_gpu_enable_triton_gemm=false",  # TensorFlow 2.12 has neither
    "--xla_gpu_enable_cublaslt=false",
    "--xla_dump_hlo_as_text",
    "--xla_dump_hlo_pass_re=NONE",
)


def compile_for_h100(source: Path, target: Path, dump: Path) -> None:
    """Compile, and keep the optimized program's text, which XLA writes to ``dump``."""
    from jax._src import compiler, xla_bridge
    from jax._src.lib import xla_client

    gpu = Path(__file__).with_name("h100.txtpb").read_text()
    topology = xla_bridge.make_pjrt_topology("cuda", "h100", target_config=gpu, topology="1x1x1")
    client = topology._make_compile_only_devices()[0].client
    program = xla_client._xla.hlo_module_from_text(source.read_text())
    computation = xla_client.XlaComputation(program.as_serialized_hlo_module_proto())
    form = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    client.compile(form, options)
    (optimized,) = dump.glob("*after_optimizations.txt")
    shutil.copy(optimized, target)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XLA_FLAGS"] = " ".join([*FLAGS, f"--xla_dump_to={folder}"])
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        compile_for_h100(Path(sys.argv[1]), Path(sys.argv[2]), Path(folder))
