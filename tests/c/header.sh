#!/bin/sh
# The header alone, in every language version it promises, without a warning; and included twice.
set -eu
cd "$(dirname "$0")/../.."
out=${CARGO_TARGET_DIR:-target}/c-tests/header
mkdir -p "$out"
cat >"$out/twice.c" <<'END'
#include "limiter.h"
#include "limiter.h"
limiter_limit some_limit(void);
limiter_limit some_limit(void) {
    return limiter_per_call(limiter_token_bucket(20, 200, LIMITER_SECOND));
}
limiter_request some_request(void);
limiter_request some_request(void) {
    limiter_request request = LIMITER_INIT(limiter_request);
    return request;
}
limiter_slot some_slot(void);
limiter_slot some_slot(void) {
    limiter_slot slot = LIMITER_INIT(limiter_slot);
    return slot;
}
limiter_stats some_stats(void);
limiter_stats some_stats(void) {
    limiter_stats stats = LIMITER_INIT(limiter_stats);
    return stats;
}
limiter_decision some_decision(void);
limiter_decision some_decision(void) {
    limiter_decision decision = LIMITER_INIT(limiter_decision);
    return decision;
}
END
strict="-Wall -Wextra -Werror -pedantic -pedantic-errors -Wconversion -Wsign-conversion -Wshadow -Iinclude"
strict_c="$strict -Wstrict-prototypes -Wmissing-prototypes -Wc++-compat"
passed=0 failed=0
try() {
    if "$@" -c "$out/twice.c" -o "$out/twice.o"; then
        passed=$((passed + 1))
    else
        echo "failed: $*"
        failed=$((failed + 1))
    fi
}
# The newest C is called c23 by later compilers, c2x by these.
for compiler in gcc clang; do
    for version in c99 c11 c17 c2x gnu99 gnu2x; do try $compiler -std=$version $strict_c; done
done
for compiler in g++ clang++; do
    for version in c++11 c++14 c++17 c++20 gnu++20; do
        try $compiler -std=$version $strict -Wold-style-cast -x c++
    done
done
echo "header: $passed passed, $failed failed"
[ "$failed" = 0 ]
