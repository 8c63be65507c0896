#!/usr/bin/env bash
# Checks and measures merlin-sim on a machine with a GPU: the tests marked gpu, then one markdown table.
#
#   scripts/check_gpu.sh [TABLE]     TABLE: where the table goes (default: gpu-table.md)
#
# benchmarks/gpu/gpu_table.py names the variables that make it shorter or longer. It exits with 2 where there is no GPU,
# with 1 where a test fails; the table is made in either case that there is a GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly TABLE=${1:-gpu-table.md}
readonly PYTHON=${PYTHON:-.venv/bin/python}

"$PYTHON" - <<'PY' || exit 2
import sys
from merlin_sim.foundation.gpus import look
gpus = look()
if not gpus.visible:
    print(f"check_gpu: there is no GPU: {gpus.problem or 'none visible'}", file=sys.stderr)
    sys.exit(1)
PY
failed=0
"$PYTHON" -m pytest -m gpu tests/gpu || failed=1
PYTHONPATH=benchmarks "$PYTHON" benchmarks/gpu/gpu_table.py | tee "$TABLE.partial"
mv "$TABLE.partial" "$TABLE"
echo "check_gpu: the table is $TABLE" >&2
exit "$failed"
