#!/usr/bin/env bash
# Fetch the Amazon Books 2014 logs, and check what came.
#
#   scripts/download_amazon_books_2014.sh [DIRECTORY]
#
# The files (about 8 GB packed) stay packed: `merlin-sim preprocess amazon-books` reads .json.gz.
# Run it again after an interruption: it goes on where it stopped.
set -euo pipefail

directory="${1:-${AMAZON_BOOKS_2014_DESTINATION:-/data/amazon_books_2014}}"
source_url="${AMAZON_BOOKS_2014_URL:-http://snap.stanford.edu/data/amazon/productGraph/categoryFiles}"
files=(meta_Books.json.gz reviews_Books.json.gz)

say() { printf 'download: %s\n' "$*"; }
fail() {
  printf 'download: %s\n' "$*" >&2
  exit 2
}

command -v curl > /dev/null || fail "curl is needed and was not found"
mkdir -p "$directory" || fail "$directory cannot be made"

# A file is whole if gzip can read it to its end, and right if its first line has the key.
check() {
  local file="$1" key="$2" first
  gzip --test "$file" 2> /dev/null || return 1
  first="$(gzip --decompress --stdout "$file" 2> /dev/null | head -n 1 || true)"
  [[ "$first" == *"$key"* ]]
}

for name in "${files[@]}"; do
  target="$directory/$name"
  key=asin
  if [[ -f "${target%.gz}" ]]; then
    say "${target%.gz} is there already"
    continue
  fi
  if [[ -f "$target" ]]; then
    say "$target is there already; checking it"
    check "$target" "$key" && continue
    say "$target is damaged; fetching it anew"
    rm -f "$target"
  fi
  say "fetching $name"
  # --continue-at - resumes; a server that has the whole file already answers 416 (curl: 22/33).
  curl --fail --location --retry 5 --retry-delay 5 --retry-connrefused \
    --continue-at - --output "$target.part" "$source_url/$name" \
    || check "$target.part" "$key" \
    || fail "$source_url/$name could not be fetched whole; run this again to go on"
  say "checking $name"
  if ! check "$target.part" "$key"; then
    rm -f "$target.part"
    fail "$name came damaged and was removed; run this again"
  fi
  mv "$target.part" "$target"
done

say "done: $directory"
say "next: merlin-sim preprocess amazon-books --amazon_dataset_path $directory --output_path DATASET"
