#!/usr/bin/env bash
# Checks and measures merlin-sim on a machine with a GPU, in order of worth, and writes one markdown table.
#
#   scripts/check_gpu.sh [TABLE]           TABLE: where the table goes (default: gpu-table.md)
#   scripts/check_gpu.sh --small [TABLE]   its questions in small, on a CPU too: tries the script out
#
# Each part is a process of its own with a time limit, and its lines are written as they come: benchmarks/gpu/visit.py has
# their order. benchmarks/gpu/gpu_table.py names the variables that make it shorter or longer, and those that let the
# published code run beside it. It exits with 2 where there is no GPU, with 1 where a part failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
SMALL=()
if [[ ${1:-} == --small ]]; then SMALL=(--small) && shift; fi
readonly TABLE=${1:-gpu-table.md}
readonly PYTHON=${PYTHON:-.venv/bin/python}

if ((!${#SMALL[@]})); then
  "$PYTHON" - <<'PY' || exit 2
import sys
from merlin_sim.foundation.gpus import look
gpus = look()
if not gpus.visible:
    print(f"check_gpu: there is no GPU: {gpus.problem or 'none visible'}", file=sys.stderr)
    sys.exit(1)
PY
fi
failed=0
PYTHONPATH=benchmarks "$PYTHON" benchmarks/gpu/visit.py "$TABLE" "${SMALL[@]}" || failed=1
echo "check_gpu: the table is $TABLE" >&2
exit "$failed"
