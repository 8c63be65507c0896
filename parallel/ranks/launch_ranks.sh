#!/usr/bin/env bash
# Starts a command on several ranks, and ends as they do: 2 wrong input, 70 a rank was lost, 75 stopped on request.
#
#   launch_ranks.sh N LAUNCHER [OPTION...] COMMAND [ARGUMENT...]
#
# The first N words after it are those of horovodrun or mpiexec. SIGTERM, SIGINT and SIGHUP ask the ranks to save and
# end, whatever time they need: told itself, a launcher kills them within seconds. The second such signal tells it.
set -euo pipefail
words=$1
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# horovodrun ends with 1 whatever a rank ended with, or with 0 where it was asked to stop and lost what
# they ended with, and mpiexec with 137 where one was killed: each rank notes its code here.
notes=$(mktemp -d)
trap 'rm -rf "$notes"' EXIT
codes=$notes/codes
: > "$codes"
code=0
launcher=
# shellcheck disable=SC2329  # a trap calls it
pass_on() {
  if [ ! -e "$notes/stopped" ]; then
    : > "$notes/stopped"  # for ranks that have yet to start
    for rank in "$notes"/[0-9]*; do kill -TERM "${rank##*/}" 2> /dev/null || true; done
  elif [ -n "$launcher" ]; then
    kill -TERM "$launcher" 2> /dev/null || true
  fi
}
trap 'pass_on' HUP INT TERM
# In a process group of its own, which Ctrl-C in a terminal does not reach.
set -m
"${@:1:words}" "$here/note_exit_code.sh" "$notes" "${@:words+1}" < /dev/null &
launcher=$!
set +m
while kill -0 "$launcher" 2> /dev/null; do wait "$launcher" || true; done
wait "$launcher" || code=$?
for known in 2 70; do
  if grep -qx "$known" "$codes"; then exit "$known"; fi
done
# A signal ended a rank. After one that failed, it is the launcher's, to a rank that had yet to trap it.
first=$(grep -vxE '0|75' "$codes" | head -n 1 || true)
if [[ "$first" =~ ^(12[89]|1[3-9][0-9]|2[0-9][0-9])$ ]]; then exit 70; fi
# Where a rank ends otherwise, the launcher stops the others, and they end with 75 too.
if [ -s "$codes" ] && ! grep -qvx 75 "$codes"; then exit 75; fi
if [ "$code" = 0 ] && grep -qvx 0 "$codes"; then exit 1; fi
exit "$code"
