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

says() { # says WHAT REGEX: of the last run
    grep -Eq "$2" "$out/log" || { cat "$out/log"; echo "demo check: $1: no line like $2" >&2; exit 1; }
}

# A verdict stands beside what it goes by, and rows without one say so.
STUB=honest expect 0 "the table" env LC_ALL=C "$out/pool" --tasks 60
says "the allowance" '^starts ahead of the rate, ever +[0-9.]+ +20 \+ 4 +held$'
says "not judged" '^most starts in any second .* not judged$'
if LC_ALL=C grep -q "[^ -~]" "$out/log"; then echo "demo check: LC_ALL=C: not only ASCII" >&2; exit 1; fi
if grep -nE '^.{81}' "$out/log"; then echo "demo check: over 80 columns" >&2; exit 1; fi
STUB=honest expect 0 "blocks" env LC_ALL= LC_CTYPE= LANG=en_US.utf8 "$out/pool" --tasks 60
LC_ALL=C grep -q "$(printf '\342\226')" "$out/log" || { echo "demo check: no blocks drawn" >&2; exit 1; }

mkdir "$out/many"
(cd "$out/many" && seq 4097 | xargs touch)
STUB=honest expect 0 "many files" "$out/pool" --tasks 20 "$out/many"
says "many files" ' over the first 4096 files, '
rm "$out/many/1"
STUB=honest expect 0 "all files" "$out/pool" --tasks 20 "$out/many"
says "all files" ' over 4096 files, '

# Ctrl-C: what ran is shown and judged, and the exit code is a shell's for it.
rm "$out/log"
STUB=honest "$out/pool" --tasks 20000 --seconds 60 --hold 20 >"$out/log" 2>&1 &
pool=$!
until grep -qs '^limits:' "$out/log"; do sleep 0.1; done
kill -INT $pool
got=0
wait $pool || got=$?
[ "$got" -eq 130 ] || { cat "$out/log"; echo "demo check: Ctrl-C: exit code $got" >&2; exit 1; }
says "Ctrl-C" '^INTERRUPTED'
echo "demo-check: 19 passed, 0 failed"
