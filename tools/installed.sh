#!/bin/sh
# Runs a command against the library as users have it: installed into a folder of its own, whose name is
# LIMITER_PREFIX to the command.
#   tools/installed.sh COMMAND...
set -eu
cd "$(dirname "$0")/.."
LIMITER_PREFIX=$(mktemp -d)
export LIMITER_PREFIX
trap 'rm -rf "$LIMITER_PREFIX"' EXIT
make -s build
make -s install PREFIX="$LIMITER_PREFIX"
"$@"
