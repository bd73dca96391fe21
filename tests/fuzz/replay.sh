#!/bin/sh
# The inputs that tests/fuzz/corpus keeps, each once, without a fuzzer: through the C interface under
# AddressSanitizer, on the library that tests/c/run.sh asan builds. Those of replies are a test of
# src/redis/fuzzed.rs, as no function of the interface takes a reply.
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
out=$target/fuzz/replay
host=$(rustc -vV | sed -n 's/^host: //p')
mkdir -p "$out"
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$target/asan \
    cargo rustc -q --lib --target "$host" --crate-type staticlib

passed=0 failed=0
for name in calls settings; do
    clang -std=c99 -D_DEFAULT_SOURCE -Wall -Wextra -Werror -pedantic -g -O1 -fsanitize=address -Iinclude \
        "tests/fuzz/$name.c" tests/fuzz/replay.c -o "$out/$name" \
        "$target/asan/$host/debug/liblimiter.a" -pthread -ldl -lm
    if "$out/$name" "tests/fuzz/corpus/$name" >"$out/$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "$name: $(tail -n 1 "$out/$name.log")"
    else
        failed=$((failed + 1))
        tail -n 60 "$out/$name.log"
        echo "again: $out/$name tests/fuzz/corpus/$name"
    fi
done
echo "replay: $passed passed, $failed failed"
[ "$failed" = 0 ]
