#!/bin/sh
# The library in use for long: tests/soak/soak.c for MINUTES in all, half of them on memory, half on a Redis
# that loses its connections and its scripts every second. Afterwards that Redis has to be empty by itself.
#   tests/soak/run.sh [MINUTES]
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
out=$target/soak

if [ "${1:-}" = --on-redis ]; then
    server="redis-cli -s ${LIMITER_URL#unix://}"
    while sleep 1; do
        $server client kill type normal
        $server client kill type pubsub
        $server script flush
    done >/dev/null 2>&1 &
    trouble=$!
    trap 'kill $trouble' EXIT
    "$out/soak" "$2" 4
    kill $trouble
    trap - EXIT
    # Every key has a time to live, which is not much longer than what it says matters.
    tries=0
    until [ "$($server dbsize)" = 0 ]; do
        tries=$((tries + 1))
        [ $tries -lt 120 ] || { echo "left on Redis: $($server --scan | head -n 20)" >&2; exit 1; }
        sleep 0.5
    done
    echo "redis: 1 passed, 0 failed"
    exit
fi

seconds=$(awk -v minutes="${1:-1}" 'BEGIN { printf "%d", minutes * 30 }')
mkdir -p "$out"
cargo build -q --release --lib
cc -std=c99 -O2 -Wall -Wextra -Werror -pedantic -Iinclude -o "$out/soak" tests/soak/soak.c \
    "$target/release/liblimiter.a" -pthread -ldl -lm
echo "on memory, ${seconds} s"
"$out/soak" "$seconds" 4
echo "on Redis, ${seconds} s"
tools/redis.sh "$0" --on-redis "$seconds"
