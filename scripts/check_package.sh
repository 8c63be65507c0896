#!/usr/bin/env bash
# Builds the sdist, of it the wheel, installs that into an empty environment, and runs the demo there, outside the
# checkout: what users of the package get. Both are left in dist/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv() { .venv/bin/uv --no-config "$@"; }

rm -rf dist
uv build --quiet --no-build-isolation --python .venv/bin/python --out-dir dist .

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
.venv/bin/python -m venv --without-pip "$directory/env"
# The lock holds the versions that are tested; extras are left out, Horovod too: one process needs none.
uv pip install --quiet --python "$directory/env/bin/python" --constraint requirements/lock.txt dist/*.whl

demo=$PWD/scripts/demo.sh
cd "$directory"
MERLIN_SIM_BIN=$directory/env/bin "$demo"
