#!/usr/bin/env bash
# Fetch the Amazon Books 2014 logs, and check what came.
#
#   scripts/download_amazon_books_2014.sh [DIRECTORY]
#
# The files (about 8 GB packed) stay packed: `merlin-sim preprocess amazon-books` reads .json.gz.
# Run it again after an interruption: it goes on where it stopped. The publisher gives no digests: the SHA-256 of what
# came is printed. Where DIRECTORY/SHA256SUMS stands (as sha256sum writes it, of files that are known to be right), what
# it names has to agree with it.
set -euo pipefail

directory="${1:-${AMAZON_BOOKS_2014_DESTINATION:-/data/amazon_books_2014}}"
source_url="${AMAZON_BOOKS_2014_URL:-https://snap.stanford.edu/data/amazon/productGraph/categoryFiles}"
files=(meta_Books.json.gz reviews_Books.json.gz)

sums="$directory/SHA256SUMS"

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

# A file that the list of digests names is the one that it names.
agrees() {
  local file="$1" name="$2" expected digest
  expected="$(awk -v name="$name" '$2 == name || $2 == "*" name { print $1 }' "$sums" 2> /dev/null || true)"
  digest="$(sha256sum "$file" | cut -d ' ' -f 1)"
  [[ -z "$expected" || "$expected" == "$digest" ]] \
    || fail "$file: expected the SHA-256 $expected, as $sums says, found $digest; remove the file, or the line"
  say "$name has the SHA-256 $digest"
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
    if check "$target" "$key"; then
      agrees "$target" "$name"
      continue
    fi
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
  agrees "$target.part" "$name"
  mv "$target.part" "$target"
done

say "done: $directory"
say "next: merlin-sim preprocess amazon-books --amazon_dataset_path $directory --output DATASET"
