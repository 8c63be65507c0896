#!/usr/bin/env bash
# Runs each RUN line of a stage of the Dockerfile in a fresh root of Debian, as a build would, then what it made in
# another one without compilers, as the image is.
#
#   tests/support/run_lines.sh ROOT [STAGE [MIRROR]]    as root; needs debootstrap
#
# STAGE is cpu-build (some minutes, 4 GB in ROOT) or gpu-wheels-build (11 GB).
# The base image's Python is Debian's here. What a machine's own apt and pip need (certificates, indexes) is taken over.
# The lines are read off the Dockerfile, so that none is left out.
set -euo pipefail
root=$(realpath --canonicalize-missing "$1")
stage=${2:-cpu-build}
mirror=${3:-http://deb.debian.org/debian}
clone=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
user=1000
home=/home/merlin/merlin_sim

device=cpu
[ "$stage" = cpu-build ] || device=gpu
build=$root/build image=$root/image

make_root() { # ROOT PACKAGES
  debootstrap --variant=minbase --include="$2" bookworm "$1" "$mirror"
  for file in /etc/hosts /etc/resolv.conf /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    if [ -e "$file" ]; then cp "$file" "$1$file"; fi
  done
  find /etc/apt/apt.conf.d -type f -name '99*' -exec cp {} "$1/etc/apt/apt.conf.d/" \;
  mount --bind /proc "$1/proc"
  mount --bind /dev "$1/dev"
}

let_go() {
  umount "$build/proc" "$build/dev" "$image/proc" "$image/dev" 2>/dev/null || true
}
trap let_go EXIT

within() { # ROOT USER COMMAND: as a build runs it, nothing of this machine's environment in it
  chroot "$1" setpriv --reuid="$2" --regid="$2" --clear-groups env --ignore-environment \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    HOME=/home/merlin PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin USER_ID=$user DEVICE=$device \
    bash -euc "$3"
}

mkdir -p "$root"
make_root "$build" ca-certificates,python3,python3-venv,python3-dev,libpython3.11
cp "$clone/scripts/setup_debian.sh" "$build/tmp/setup_debian.sh"
mapfile -t lines < <(sed -n "/ AS $stage\$/,/^FROM .* AS ${stage%-build}\$/s/^RUN //p" "$clone/Dockerfile")
for place in "${!lines[@]}"; do
  line=${lines[$place]}
  echo "run_lines: $line"
  if [ "$place" -eq 0 ]; then
    within "$build" 0 "$line"
    git -C "$clone" archive HEAD | tar -x -C "$build$home"
    chown -R "$user:$user" "$build/home/merlin"
  else
    within "$build" "$user" "cd $home && $line"
  fi
done
# The image: what was built, on the base's Python, without git, make and compilers.
make_root "$image" ca-certificates,python3,libpython3.11
mv "$build/home/merlin" "$image/home/merlin"
within "$image" "$user" "! command -v g++ make git && cd $home && .venv/bin/merlin-sim doctor"
echo "run_lines: ${#lines[@]} lines were run"
