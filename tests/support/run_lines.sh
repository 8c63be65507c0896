#!/usr/bin/env bash
# Runs each RUN line of the Dockerfile's stage cpu-build in a fresh root of Debian, as a build would.
#
#   tests/support/run_lines.sh ROOT [MIRROR]    as root; needs debootstrap; takes some minutes and 4 GB in ROOT
#
# The base image's Python is Debian's here. What a machine's own apt and pip need (certificates, indexes) is taken over.
# The lines are read off the Dockerfile, so that none is left out.
set -euo pipefail
root=$(realpath --canonicalize-missing "$1")
mirror=${2:-http://deb.debian.org/debian}
clone=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
user=1000
home=/home/merlin/merlin_sim

debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv,python3-dev,libpython3.11 \
  bookworm "$root" "$mirror"
for file in /etc/hosts /etc/resolv.conf /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
  if [ -e "$file" ]; then cp "$file" "$root$file"; fi
done
find /etc/apt/apt.conf.d -type f -name '99*' -exec cp {} "$root/etc/apt/apt.conf.d/" \;
mount --bind /proc "$root/proc"
mount --bind /dev "$root/dev"
trap 'umount "$root/proc" "$root/dev"' EXIT

within() { # USER COMMAND: as a build runs it, nothing of this machine's environment in it
  chroot "$root" setpriv --reuid="$1" --regid="$1" --clear-groups env --ignore-environment \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    HOME=/home/merlin PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin USER_ID=$user bash -euc "$2"
}

cp "$clone/scripts/setup_debian.sh" "$root/tmp/setup_debian.sh"
mapfile -t lines < <(sed -n '/ AS cpu-build$/,/^FROM .* AS cpu$/s/^RUN //p' "$clone/Dockerfile")
for place in "${!lines[@]}"; do
  line=${lines[$place]}
  echo "run_lines: $line"
  if [ "$place" -eq 0 ]; then
    within 0 "$line"
    git -C "$clone" archive HEAD | tar -x -C "$root$home"
    chown -R "$user:$user" "$root/home/merlin"
  else
    within "$user" "cd $home && $line"
  fi
done
within "$user" "cd $home && .venv/bin/merlin-sim doctor"
echo "run_lines: ${#lines[@]} lines were run"
