#!/bin/sh
# The demo must find out a limiter that lets too much through: it runs here against stand-ins that do.
set -eu
cd "$(dirname "$0")/../.."
compiler=${CC:-cc}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

"$compiler" -std=c99 -O2 -Wall -Wextra -Werror -pedantic -pthread -Iinclude -o "$out/pool" \
    examples/c/worker_pool.c examples/c/worker_pool/*.c tests/examples/stub_limiter.c
mkdir "$out/files"
dd if=/dev/zero of="$out/files/large" bs=1048576 count=1 2>/dev/null

expect() { # expect CODE WHAT COMMAND...
    code=$1 what=$2
    shift 2
    got=0
    "$@" >"$out/log" 2>&1 || got=$?
    if [ "$got" -ne "$code" ]; then
        cat "$out/log"
        echo "demo check: $what: exit code $got, expected $code" >&2
        exit 1
    fi
}

STUB=honest expect 0 honest "$out/pool" --tasks 300 --record "$out/one"
STUB=at-once expect 1 "5 at once" "$out/pool" --tasks 100 --hold 20
STUB=starts expect 1 "210 per second" "$out/pool" --tasks 400 --hold 1
STUB=burst expect 1 "burst 26" "$out/pool" --tasks 60 --hold 1
STUB=bytes expect 1 "no settling" "$out/pool" --tasks 100 --hold 1 --files "$out/files"

# Two runs that each kept the limits did not keep them together.
expect 0 "one record" "$out/pool" --check "$out/one"
expect 1 "the same record twice" "$out/pool" --check "$out/one" "$out/one"
echo nonsense >"$out/bad"
expect 2 "no record" "$out/pool" --check "$out/bad"
expect 2 "no folder" "$out/pool" --files "$out/nowhere"
expect 2 "no number" "$out/pool" --tasks 0
expect 2 "no such option" "$out/pool" --what
echo "demo-check: 11 passed, 0 failed"
