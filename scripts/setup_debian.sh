#!/usr/bin/env bash
# Prepares a bare Debian or Ubuntu for `make`: git, make and a C++ compiler for Horovod.
#
#   scripts/setup_debian.sh [DIRECTORY UID]   also makes DIRECTORY, owned by the user UID
set -euo pipefail

missing=()
for program in git make g++; do
  command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup_debian: git, make and g++ are here"
else
  echo "setup_debian: installing ${missing[*]}"
  apt-get update
  apt-get install --yes --no-install-recommends "${missing[@]}"
  rm -rf /var/lib/apt/lists/*
fi
if [ $# -eq 2 ]; then
  install --directory --owner="$2" --group="$2" "$(dirname "$1")" "$1"
fi
