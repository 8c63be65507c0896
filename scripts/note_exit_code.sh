#!/usr/bin/env bash
# Runs a command, and appends the code with which it ended to a file.
#
#   scripts/note_exit_code.sh CODES COMMAND [ARGUMENT...]
#
# SIGTERM and SIGINT are passed on to the command as SIGTERM; what it does then counts.
codes=$1
shift
command=
stopped=
pass_on() { [ -z "$command" ] || kill -TERM "$command" 2> /dev/null; }
# Before the command starts, or a signal just after would end this script and not reach it.
trap 'stopped=yes; pass_on' INT TERM
"$@" &
command=$!
[ -z "$stopped" ] || pass_on
# A signal ends `wait` early. The last one gives the code, which bash keeps.
while kill -0 "$command" 2> /dev/null; do wait "$command"; done
wait "$command"
code=$?
echo "$code" >> "$codes"
exit "$code"
