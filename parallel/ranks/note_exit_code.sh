#!/usr/bin/env bash
# Runs a command for launch_ranks.sh: notes its own process while the command runs, then the code with which it ended.
#
#   note_exit_code.sh NOTES COMMAND [ARGUMENT...]
#
# SIGTERM and SIGINT are passed on to the command as SIGTERM; what it does then counts.
notes=$1
shift
command=
stopped=
pass_on() { [ -z "$command" ] || kill -TERM "$command" 2> /dev/null; }
# Before the command starts, or a signal just after would end this script and not reach it.
trap 'stopped=yes; pass_on' INT TERM
: > "$notes/$$"
code=75
if [ -z "$stopped" ] && [ ! -e "$notes/stopped" ]; then
  "$@" &
  command=$!
  [ -z "$stopped" ] || pass_on
  # A signal ends `wait` early. The last one gives the code, which bash keeps.
  while kill -0 "$command" 2> /dev/null; do wait "$command"; done
  wait "$command"
  code=$?
fi
rm -f "$notes/$$"
echo "$code" >> "$notes/codes"
# Another code would have the launcher end the other ranks, which may still save.
[ "$code" != 75 ] || exit 0
exit "$code"
