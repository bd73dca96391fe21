#!/bin/sh
# Fuzzes the C interface, and what reads a server's replies, with libFuzzer, library and targets under
# AddressSanitizer: first the inputs in tests/fuzz/corpus, then RUNS new ones for each target. A failing
# input is kept and named.
#   tests/fuzz/run.sh [RUNS [TARGET...]]
set -eu
cd "$(dirname "$0")/../.."
runs=${1:-20000}
[ $# = 0 ] || shift
[ $# != 0 ] || set -- calls settings replies
target=${CARGO_TARGET_DIR:-target}
out=$target/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
mkdir -p "$out/found"

# What the library stands on is shared with the build of tests/c/run.sh asan; only itself is watched.
watched="--cfg fuzzing -Copt-level=2 -Ccodegen-units=1 -Clink-dead-code -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$target/asan \
    cargo rustc -q --lib --target "$host" --crate-type staticlib -- $watched
cp "$target/asan/$host/debug/liblimiter.a" "$out/liblimiter.a"

passed=0 failed=0
for name in "$@"; do
    clang -std=c99 -Wall -Wextra -Werror -pedantic -g -O1 -fsanitize=fuzzer,address -Iinclude \
        "tests/fuzz/$name.c" -o "$out/$name" "$out/liblimiter.a" -pthread -ldl -lm
    # New inputs that reach new code are kept apart: the corpus changes by hand only.
    mkdir -p "$out/found/$name"
    if "$out/$name" -runs=0 "tests/fuzz/corpus/$name" >"$out/$name.log" 2>&1 &&
        "$out/$name" -runs="$runs" -max_len=512 -timeout=20 -print_final_stats=1 \
            -artifact_prefix="$out/found/$name-" "$out/found/$name" "tests/fuzz/corpus/$name" \
            >>"$out/$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "fuzz $name: $(find "tests/fuzz/corpus/$name" -type f | wc -l) inputs again," \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log") in all, no failure"
    else
        failed=$((failed + 1))
        tail -n 60 "$out/$name.log"
        echo "again: $out/$name $(ls -t "$out/found/$name-"* 2>/dev/null | head -n 1)"
    fi
done
echo "fuzz: $passed passed, $failed failed"
[ "$failed" = 0 ]
