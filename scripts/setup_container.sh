#!/usr/bin/env bash
# Adds merlin-sim to an environment that already has TensorFlow, Horovod and cudf: NVIDIA's Merlin
# container. Only requirements/container.txt and this package are installed, without their
# dependencies, so that nothing which fits the container's CUDA is replaced.
#
#   PYTHON   the environment's interpreter (default: python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}

for package in tensorflow horovod; do
  "$python" -c "import importlib.metadata as m; m.version('$package')" 2>/dev/null || {
    echo "setup_container: $package is not installed here; use make setup" >&2
    exit 2
  }
done
"$python" -m pip install --no-cache-dir --no-deps --requirement requirements/container.txt
"$python" -m pip install --no-cache-dir --no-deps --no-build-isolation --editable .
"$python" -c 'from merlin_sim.scripts.main import main; main()' doctor
