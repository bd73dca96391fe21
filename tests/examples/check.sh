#!/bin/sh
# The demo must find out a limiter that lets too much through: it runs here against stand-ins that do, and
# as several processes on Redis with and without a limit in common.
# LIMITER_LIBDIR (default: target/release) holds liblimiter.a; CC is the compiler.
set -eu
cd "$(dirname "$0")/../.."
libdir=${LIMITER_LIBDIR:-${CARGO_TARGET_DIR:-target}/release}
compiler=${CC:-cc}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export TMPDIR="$out"
unset LIMITER_URL

build() { # build NAME WHAT-THE-PARTS-ARE-LINKED-WITH...
    name=$1
    shift
    "$compiler" -std=c99 -O2 -Wall -Wextra -Werror -pedantic -pthread -Iinclude -o "$out/$name" \
        examples/c/worker_pool/*.c "$@"
}

build judge tests/examples/judge.c
"$out/judge"
build pool examples/c/worker_pool.c tests/examples/stub_limiter.c
mkdir "$out/files"
dd if=/dev/zero of="$out/files/large" bs=1048576 count=1 2>/dev/null

passed=0
expect() { # expect CODE WHAT COMMAND...
    code=$1 what=$2
    passed=$((passed + 1))
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
    passed=$((passed + 1))
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
running() { # waits until the program that writes the log is at work
    until grep -qs '^limits:' "$out/log"; do sleep 0.1; done
}
rm "$out/log"
STUB=honest "$out/pool" --tasks 20000 --seconds 60 --hold 20 >"$out/log" 2>&1 &
pool=$!
running
kill -INT $pool
got=0
wait $pool || got=$?
[ "$got" -eq 130 ] || { cat "$out/log"; echo "demo check: Ctrl-C: exit code $got" >&2; exit 1; }
says "Ctrl-C" '^INTERRUPTED'

# Several processes that share the limits through a Redis of their own, and one that is killed.
build fleet examples/c/worker_pool.c "$libdir/liblimiter.a" -ldl -lm
fleet="--processes 3 --kill 1500 --lease 2000 --seconds 7"
gone() { # gone WHAT: nothing that was started is there any more
    passed=$((passed + 1))
    left=$(find "$out" -mindepth 1 -maxdepth 1 -name 'tmp.*')
    [ -z "$left" ] || { echo "demo check: $1 leaves $left" >&2; exit 1; }
}

# shellcheck disable=SC2086 # a list of words
expect 0 "three processes" tools/redis.sh "$out/fleet" $fleet --record "$out/r" --ascii
says "the kill" '^ +\^ a process is killed with [1-4] in flight$'
says "the return" 'all 4 are in use again'
says "in time" '^in use again after the kill +[0-9.]+ s +2\.35 \+ 1\.00 s +held$'
if grep -nE '^.{81}' "$out/log"; then echo "demo check: over 80 columns" >&2; exit 1; fi
gone "three processes"
expect 0 "their records" "$out/fleet" --check "$out/r.1" "$out/r.2" "$out/r.3"
says "the same" '^in use again after the kill +[0-9.]+ s +2\.35 \+ 1\.00 s +held$'
expect 1 "one of them twice" "$out/fleet" --check "$out/r.1" "$out/r.2" "$out/r.3" "$out/r.1"

# Each in its own memory: that is no common limit.
expect 1 "memory" "$out/fleet" --processes 3 --seconds 2 --url memory://
says "memory" '^most tasks at once .* EXCEEDED$'

# Three that were started by hand, of which somebody kills one: under one name, and each under its own.
cat >"$out/by-hand" <<'END'
#!/bin/sh
# by-hand PROGRAM RECORDS NAME NAME NAME
program=$1 records=$2
shift 2
n=0
pids=
for name in "$@"; do
    n=$((n + 1))
    hold=25
    [ $n != 3 ] || hold=4000 # so that it has something in flight when it is killed
    "$program" --name "$name" --record "$records.$n" --lease 1000 --tasks 5000 --seconds 5 --hold $hold &
    last=$!
    [ $n = 3 ] || pids="$pids $last"
done
sleep 1
kill -KILL $last
wait $last
for pid in $pids; do wait "$pid" || exit; done
END
chmod +x "$out/by-hand"
expect 0 "by hand" tools/redis.sh "$out/by-hand" "$out/fleet" "$out/h" one one one
expect 0 "records made by hand" "$out/fleet" --check "$out/h.1" "$out/h.2" "$out/h.3"
says "by hand" '^in use again after the kill +[0-9.]+ s +1\.35 \+ 1\.00 s +held$'
expect 0 "no common name" tools/redis.sh "$out/by-hand" "$out/fleet" "$out/n" one two three
expect 1 "records without a common name" "$out/fleet" --check "$out/n.1" "$out/n.2" "$out/n.3"
says "no common name" '^most tasks at once .* EXCEEDED$'

# Redis is not there; and what is said of the URL holds no password.
expect 2 "no Redis" "$out/fleet" --processes 3 --url "redis://user:secret@127.0.0.1:1/0?pass=secret"
says "no Redis" '^worker_pool: no answer from redis://127\.0\.0\.1:1/0: .*refused'
if grep -q secret "$out/log"; then echo "demo check: a password is shown" >&2; exit 1; fi
expect 2 "no time" "$out/fleet" --processes 3 --kill 1500
expect 2 "nobody to kill" "$out/fleet" --kill 1500

# Told to stop, it stops everything; and if it is killed itself, nothing goes on without it.
rm "$out/log"
tools/redis.sh "$out/fleet" --processes 3 --seconds 60 --hold 20 >"$out/log" 2>&1 &
pool=$!
running
server=$(cat "$out"/tmp.*/pid)
kill -TERM $pool
got=0
wait $pool || got=$?
[ "$got" -eq 143 ] || { cat "$out/log"; echo "demo check: stopped: exit code $got" >&2; exit 1; }
says "stopped" '^INTERRUPTED'
gone "stopped"
if kill -0 "$server" 2>/dev/null; then echo "demo check: the server goes on" >&2; exit 1; fi
rm "$out/log"
mkfifo "$out/fifo"
timeout 30 cat "$out/fifo" >"$out/log" & # until nobody has it open for writing
reader=$!
"$out/fleet" --processes 3 --seconds 60 >"$out/fifo" 2>&1 &
pool=$!
running
kill -KILL $pool
wait $reader || { echo "demo check: processes go on without their parent" >&2; exit 1; }
echo "demo-check: $passed passed, 0 failed"
