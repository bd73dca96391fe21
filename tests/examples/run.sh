#!/bin/sh
# Compiles every C example against the built library as a user would, and runs it.
# LIMITER_LIBDIR (default: target/release) holds liblimiter.so; CC is the compiler.
set -eu
cd "$(dirname "$0")/../.."
libdir=$(cd "${LIMITER_LIBDIR:-${CARGO_TARGET_DIR:-target}/release}" && pwd)
compiler=${CC:-cc}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# As installed: the name the linker looks for, and the one programs load.
ln -s "$libdir/liblimiter.so" "$out/liblimiter.so"
ln -s liblimiter.so "$out/liblimiter.so.0"

build() { # build NAME SOURCE...
    name=$1
    shift
    "$compiler" -std=c99 -O2 -Wall -Wextra -Werror -pedantic -pthread -Iinclude -o "$out/$name" "$@" \
        -L"$out" -Wl,-rpath,"$out" -llimiter
}

for example in minimal event_loop callback_pool hooks virtual_clock; do
    build "$example" "examples/c/$example.c"
    "$out/$example"
done

build worker_pool examples/c/worker_pool.c examples/c/worker_pool/*.c
"$out/worker_pool" --tasks 200 --record "$out/one" >"$out/picture"
"$out/worker_pool" --check "$out/one" >/dev/null
# Bytes are what limits here: 24 tasks of 4 MiB are 96 MiB, and 64 MiB per second pass.
mkdir "$out/files"
dd if=/dev/zero of="$out/files/large" bs=1048576 count=4 2>/dev/null
"$out/worker_pool" --tasks 24 --hold 0 --files "$out/files" >"$out/bytes"
grep '^asked 24, admitted 24' "$out/bytes"
echo "examples: 8 passed, 0 failed"
