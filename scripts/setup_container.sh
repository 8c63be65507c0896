#!/usr/bin/env bash
# Adds merlin-sim to an environment that already has TensorFlow, Horovod and cudf: NVIDIA's Merlin
# container. Only requirements/container.txt and this package are installed, without their
# dependencies, so that nothing which fits the container's CUDA is replaced.
#
#   PYTHON   the environment's interpreter (default: python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}

# Prints every package of requirements/container-assumed.txt that is missing here or is another version.
unlike_assumed() {
  "$python" - requirements/container-assumed.txt <<'PY'
import importlib.metadata, sys
from packaging.requirements import Requirement
for line in open(sys.argv[1], encoding="utf-8"):
    if not line.strip() or line.startswith("#"):
        continue
    wanted = Requirement(line.strip())
    for name in (wanted.name, *importlib.metadata.packages_distributions().get(wanted.name, ())):
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        break
    else:
        print(f"setup_container: {wanted.name} is not installed here")
        continue
    if not wanted.specifier.contains(found, prereleases=True):
        print(f"setup_container: {wanted} is assumed, {found} is installed here")
PY
}

unlike=$(unlike_assumed)
if [ -n "$unlike" ]; then
  printf '%s\n' "$unlike" "setup_container: this is not the container that requirements/container-assumed.txt describes; use make setup" >&2
  exit 2
fi
export PIP_CONSTRAINT=  # the container's own would bind these too
"$python" -m pip install --no-cache-dir --no-deps --requirement requirements/container.txt
"$python" -m pip install --no-cache-dir --no-deps --no-build-isolation --editable .
"$python" -c 'from merlin_sim.scripts.main import main; main()' doctor
