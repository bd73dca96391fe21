#!/bin/sh
# The shared library's face: it exports the header's functions and nothing else, the list is the one
# recorded in symbols.txt (a change of it is a decision: edit the file), its SONAME carries
# LIMITER_ABI, it is never unloaded, and it needs no library but the C library's.
#   tests/abi/check.sh
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
so=$target/release/liblimiter.so
out=$target/abi
mkdir -p "$out"
passed=0 failed=0
verdict() { # name condition-exit-code
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $1"; fi
}

# Every declaration the preprocessed header marks as exported.
gcc -std=c99 -Iinclude -E include/limiter.h | tr '\n' ' ' | tr ';' '\n' |
    grep 'visibility("default")' | grep -o 'limiter_[a-z_]* *(' | sed 's/ *(//' |
    awk '!seen[$0]++' | LC_ALL=C sort >"$out/header.txt"
nm -D --defined-only "$so" | awk '{print $NF}' | LC_ALL=C sort >"$out/exported.txt"
tags=$(readelf -dW "$so")

verdict "the header declares at least 30 functions" "$([ "$(wc -l <"$out/header.txt")" -ge 30 ]; echo $?)"
verdict "exported = header" "$(diff -u "$out/header.txt" "$out/exported.txt" >&2; echo $?)"
verdict "exported = tests/abi/symbols.txt" "$(diff -u tests/abi/symbols.txt "$out/exported.txt" >&2; echo $?)"

abi=$(sed -n 's/^#define LIMITER_ABI //p' include/limiter.h)
verdict "SONAME is liblimiter.so.$abi" \
    "$(echo "$tags" | grep -q "(SONAME).*\[liblimiter\.so\.$abi\]"; echo $?)"
verdict "NODELETE" "$(echo "$tags" | grep -q 'FLAGS_1.*NODELETE'; echo $?)"
verdict "no text relocations" "$(! echo "$tags" | grep -q TEXTREL; echo $?)"
verdict "no executable stack" "$(! readelf -lW "$so" | grep GNU_STACK | grep -q E; echo $?)"
# An allocator of its own would show as an undefined or defined je_/mi_ symbol.
verdict "the host's allocator" "$(nm -D --undefined-only "$so" | grep -q ' malloc'; echo $?)"
foreign=$(echo "$tags" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -vE '^(libc|libm|libdl|libpthread|librt|libgcc_s|ld-linux-.*)\.so' || true)
verdict "needs nothing beyond the C library and libgcc_s (not: $foreign)" "$([ -z "$foreign" ]; echo $?)"

echo "abi: $passed passed, $failed failed"
[ "$failed" = 0 ]
