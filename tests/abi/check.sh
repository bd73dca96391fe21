#!/bin/sh
# The shared library's face: it exports the header's functions and nothing else, the list is the one
# recorded in symbols.txt (a change of it is a decision: edit the file), its SONAME carries
# LIMITER_ABI, it is never unloaded, and it needs no library but the C library's.
#
# v0/ is the baseline: limiter.h as it was first, and a program built with it. What the header (which is what
# the library's source generates) says of types may only gain functions: abidiff compares libraries of empty
# functions made from both headers. A struct that grows at its end is allowed by the header's rules, and then
# gets a folder v1 to compare with, while the programs of all folders go on being run. Functions may be added.
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

# A library of empty functions with a header's interface, and debug information that tells its types.
hollow() { # header name
    {
        cat "$1"
        gcc -std=c99 -E -P "$1" | tr '\n' ' ' | sed 's/;/;\n/g' |
            grep -o '__attribute__((visibility("default"))).*;' | sed 's/;$/ { __builtin_trap(); }/'
        echo 'limiter_slot *hollow_slot;' # passed as void *
    } >"$out/$2.c"
    mkdir -p "$out/$2"
    gcc -std=c99 -w -g -fPIC -shared -Wl,-soname,"liblimiter.so.$abi" -o "$out/$2/liblimiter.so" "$out/$2.c"
}
same() { # is what hollow made of header $1 like the baseline's, but for more functions?
    hollow "$1" changed && abidiff --no-added-syms "$out/baseline/liblimiter.so" "$out/changed/liblimiter.so"
}
newest=$(ls -d tests/abi/v* | tail -n 1)
hollow "$newest/limiter.h" baseline
verdict "types are those of $newest/limiter.h" "$(same include/limiter.h >&2; echo $?)"

# It notices, does it? Each of these is a change of the header that breaks programs.
changed() { # what sed-script
    sed "$2" include/limiter.h >"$out/mutant.h"
    verdict "$1 is noticed" "$(! cmp -s include/limiter.h "$out/mutant.h" && ! same "$out/mutant.h" >"$out/log"; echo $?)"
}
changed "a wider field" 's/^    uint32_t lease_ms;/    uint64_t lease_ms;/'
changed "a field in between" 's/^    uint64_t never;/    uint64_t early; &/'
changed "a decision that grows" 's/^} limiter_decision;/    uint64_t late; &/'
changed "a slot that changes" 's/^    struct limiter_t \*limiter;/    void *more; &/'
changed "a narrower number" 's/^typedef uint64_t limiter_permit;/typedef uint32_t limiter_permit;/'
changed "another result" 's/^int64_t limiter_pace_ms/int32_t limiter_pace_ms/'
changed "a function less" '/^limiter_status limiter_reset/,/;/d'
sed 's/^LIMITER_API uint32_t limiter_version/LIMITER_API void limiter_more(void); &/' include/limiter.h >"$out/mutant.h"
verdict "a function more is allowed" "$(same "$out/mutant.h" >"$out/log"; echo $?)"

# Old programs, linked with the library of their time as far as a linker sees one, run with this one.
mkdir -p "$out/now"
ln -sf "$(cd "$(dirname "$so")" && pwd)/liblimiter.so" "$out/now/liblimiter.so.$abi"
for old in tests/abi/v*; do
    hollow "$old/limiter.h" old
    gcc -std=c99 -Wall -Wextra -Werror -pedantic -D_POSIX_C_SOURCE=200809L -o "$out/program" \
        "$old/program.c" -L"$out/old" -llimiter -Wl,--allow-shlib-undefined
    verdict "a program of $old runs" "$(LD_LIBRARY_PATH=$out/now "$out/program" >&2; echo $?)"
    unused=$(grep -o 'limiter_[a-z_]* {\|limiter_[a-z_]*(' "$out/old.c" | tr -d '({ ' | LC_ALL=C sort -u |
        while read -r name; do
            nm -D "$out/old/liblimiter.so" | grep -q " T $name\$" && ! nm -u "$out/program" | grep -q " $name\$" &&
                echo "$name"
        done || true)
    verdict "and calls every function (not: $unused)" "$([ -z "$unused" ]; echo $?)"
done

echo "abi: $passed passed, $failed failed"
[ "$failed" = 0 ]
