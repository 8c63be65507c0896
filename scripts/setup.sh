#!/usr/bin/env bash
# Builds the environment in .venv: the locked packages, Horovod for this TensorFlow, merlin-sim itself.
#
# Called by `make setup`; running it again is cheap. `--packages` leaves merlin-sim itself out (a
# container's layer that outlives changes of the code). Five variables steer it:
#   DEVICE              cpu or gpu: which packages (default: those that .venv has; where there is none, gpu on a
#                       machine with an NVIDIA driver, else cpu)
#   PYTHON              the interpreter to use (default: the first that works of python3.11, python3.10, python3)
#   MERLIN_SIM_CACHE    where the built Horovod wheel is kept (default: ~/.cache/merlin-sim)
#   HOROVOD             1 builds Horovod, for runs on several ranks; 0 leaves it out (default: what was chosen for .venv
#                       before; 1 where it is new)
#   HOROVOD_*           Horovod's own build settings, e.g. HOROVOD_WITH_MPI=1 or HOROVOD_GPU_OPERATIONS=NCCL
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv
readonly CACHE="${MERLIN_SIM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/merlin-sim}"

# Which set of packages is asked for, is here, or fits the machine.
choose_device() {
  case "${DEVICE:-}" in
    cpu | gpu) echo "$DEVICE" ;;
    "")
      if [ -s "$VENV/.device" ]; then cat "$VENV/.device"
      elif has_nvidia_driver; then echo gpu
      else echo cpu; fi
      ;;
    *) refuse "DEVICE should be cpu or gpu. Received: $DEVICE" ;;
  esac
}

# Whether Horovod is asked for, or was before.
choose_horovod() {
  case "${HOROVOD:-}" in
    0 | 1) echo "$HOROVOD" ;;
    "") cat "$VENV/.horovod" 2>/dev/null || echo 1 ;;
    *) refuse "HOROVOD should be 0 or 1. Received: $HOROVOD" ;;
  esac
}

has_nvidia_driver() {
  [ "$(uname -m)" = x86_64 ] && { [ -e /proc/driver/nvidia/version ] || command -v nvidia-smi >/dev/null; }
}

say() { printf 'setup: %s\n' "$*"; }
refuse() {
  printf 'setup: %s\n' "$*" >&2
  exit 2
}

# Prints the interpreter's own path if it can carry merlin-sim, the reason if it cannot.
probe() {
  "$1" - <<'PY' 2>/dev/null || echo "cannot be run"
import sys
version = "%d.%d" % sys.version_info[:2]
if version not in ("3.10", "3.11"):
    print("is Python " + version)
else:
    try:
        import ensurepip, venv
        print("ok " + sys.executable)
    except ImportError:
        print("is Python " + version + " without venv (Debian: python" + version + "-venv)")
PY
}

find_python() {
  local candidate verdict seen=""
  for candidate in ${PYTHON:-python3.11 python3.10 python3}; do
    command -v "$candidate" >/dev/null || { seen+="; $candidate is not installed"; continue; }
    verdict=$(probe "$candidate")
    case "$verdict" in
      "ok "*) echo "${verdict#ok }"; return ;;
      *) seen+="; $candidate $verdict" ;;
    esac
  done
  refuse "merlin-sim needs Python 3.10 or 3.11 with venv: TensorFlow 2.12 has no build for others (found: ${seen#; }). Name one with PYTHON=/path/to/python3.11."
}

# Whether the environment is whole and of the Python that was asked for.
fits_environment() {
  "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || return 1
  [ "$(cat "$VENV/.device" 2>/dev/null || echo cpu)" = "$device" ] || return 1
  [ -z "${PYTHON:-}" ] || [ "$(version_of "$VENV/bin/python")" = "$(version_of "$python")" ]
}

version_of() { "$1" -c 'import sys; print(*sys.version_info[:2])'; }

install_packages() {
  if ! fits_environment; then
    say "making $VENV with $python"
    rm -rf "$VENV"
    "$python" -m venv "$VENV"
    echo "$device" >"$VENV/.device"
  fi
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
    --requirement requirements/uv.txt
  local lock=requirements/lock.txt size=2.6
  [ "$device" = cpu ] || { lock=requirements/gpu-lock.txt size=8; }
  say "installing the locked packages ($lock; about $size GB the first time)"
  # The lock is whole. Of the large set Merlin's packages ask for older versions than it holds (requirements/gpu.in).
  uv pip install --quiet --require-hashes --no-deps --compile-bytecode -r "$lock"
  [ "$device" = cpu ] || install_gpu_environment
}

# CUDA's libraries lie beside the packages: every Python of the environment knows where, without further settings.
install_gpu_environment() {
  local site
  site=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  cp scripts/gpu_environment.py "$site/merlin_sim_gpu_environment.py"
  echo "import merlin_sim_gpu_environment" >"$site/merlin_sim_gpu_environment.pth"
}

uv() { VIRTUAL_ENV="$PWD/$VENV" "$VENV/bin/uv" --no-config "$@"; }

# A Horovod wheel fits one Python, one TensorFlow, one libc and one set of build settings.
horovod_wheel_directory() {
  export HOROVOD_WITH_TENSORFLOW="${HOROVOD_WITH_TENSORFLOW:-1}"
  export HOROVOD_WITH_GLOO="${HOROVOD_WITH_GLOO:-1}"
  [ -n "${HOROVOD_WITH_MPI:-}" ] || export HOROVOD_WITHOUT_MPI="${HOROVOD_WITHOUT_MPI:-1}"
  export HOROVOD_WITHOUT_PYTORCH="${HOROVOD_WITHOUT_PYTORCH:-1}"
  export HOROVOD_WITHOUT_MXNET="${HOROVOD_WITHOUT_MXNET:-1}"
  local settings
  settings=$({ env | grep '^HOROVOD_' | sort; cat requirements/horovod.txt; } | cksum | cut -d' ' -f1)
  "$VENV/bin/python" - "$CACHE" "$settings" <<'PY'
import importlib.metadata, platform, sys
tensorflow = importlib.metadata.version("tensorflow")
python = "cp%d%d" % sys.version_info[:2]
libc = "-".join(platform.libc_ver())
print(f"{sys.argv[1]}/horovod/tensorflow-{tensorflow}-{python}-{libc}-{platform.machine()}-{sys.argv[2]}")
PY
}

install_horovod() {
  local kept partial
  kept=$(horovod_wheel_directory)
  if ! compgen -G "$kept/*.whl" >/dev/null; then
    command -v c++ >/dev/null || refuse "building Horovod needs a C++ compiler (Debian: g++); none is on the PATH."
    say "building Horovod against this TensorFlow: about two minutes, once; kept in $kept"
    mkdir -p "$(dirname "$kept")"
    partial=$(mktemp -d "$kept.XXXXXX")
    if ! PATH="$PWD/$VENV/bin:$PATH" "$VENV/bin/python" -m pip wheel --quiet --no-deps \
        --no-build-isolation --no-cache-dir --no-binary horovod --require-hashes -r requirements/horovod.txt \
        --wheel-dir "$partial" >"$partial/build.log" 2>&1; then
      tail -n 40 "$partial/build.log" >&2
      refuse "Horovod did not build; the whole log is $partial/build.log"
    fi
    rm "$partial/build.log"
    mv -T "$partial" "$kept" 2>/dev/null || rm -rf "$partial"  # another build was first
  fi
  uv pip install --quiet --no-deps "$kept"/*.whl
}

case "$*" in
  "" | --packages) ;;
  *) refuse "usage: scripts/setup.sh [--packages]" ;;
esac
device=$(choose_device)
horovod=$(choose_horovod)
python=$(find_python)
install_packages
echo "$horovod" >"$VENV/.horovod"
if [ "$horovod" = 1 ]; then install_horovod; else say "leaving Horovod out: HOROVOD=1 make setup adds it"; fi
if [ "$*" = "--packages" ]; then
  say "ready: the packages are in $VENV"
  exit 0
fi
uv pip install --quiet --no-deps --no-build-isolation --editable .
touch "$VENV/.ready"{,"-$device"}{,"-horovod$horovod"}
say "ready: $VENV/bin/merlin-sim --help"
