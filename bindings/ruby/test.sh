#!/bin/sh
# Tests the Ruby gem against an installed liblimiter:
#     LIMITER_PREFIX=/usr/local bindings/ruby/test.sh [name ...]
# LIMITER_LIB (a liblimiter.so file) takes its place for a tree that is not installed. Names choose
# test files (test/test_NAME.rb); none runs all of them. Prints "ruby: N passed, N failed" at the end.
set -u
cd "$(dirname "$0")" || exit 1

# Debian: ruby ruby-dev ruby-ffi ruby-rack puma ruby-sidekiq redis-server gcc
missing=
for tool in ruby gem puma sidekiq redis-server redis-cli cc; do
    command -v "$tool" >/dev/null || missing="$missing $tool"
done
for feature in ffi rack sidekiq minitest rbs; do
    ruby -e "require '$feature'" 2>/dev/null || missing="$missing ruby:$feature"
done
if [ -n "$missing" ]; then
    echo "missing:$missing" >&2
    echo "Debian has them as: ruby ruby-ffi ruby-rack puma ruby-sidekiq redis-server redis-tools gcc" >&2
    exit 1
fi

if [ -n "${LIMITER_PREFIX:-}" ] && [ -z "${LIMITER_LIB:-}" ]; then
    for dir in lib lib64 "lib/$(cc -print-multiarch 2>/dev/null)"; do
        [ -e "$LIMITER_PREFIX/$dir/liblimiter.so.0" ] || continue
        LIMITER_LIB=$LIMITER_PREFIX/$dir/liblimiter.so.0
        LIMITER_HEADER=${LIMITER_HEADER:-$LIMITER_PREFIX/include/limiter.h}
        export LIMITER_LIB LIMITER_HEADER
        break
    done
    if [ -z "${LIMITER_LIB:-}" ]; then
        echo "no liblimiter.so.0 below $LIMITER_PREFIX" >&2
        exit 1
    fi
fi

if [ $# -eq 0 ]; then
    set -- test/test_*.rb
else
    for name in "$@"; do
        shift
        set -- "$@" "test/test_$name.rb"
    done
fi

report=$(mktemp) || exit 1
trap 'rm -f "$report"' EXIT
status=0
passed=0
failed=0
# The scenarios once more, on Redis.
case " $* " in *" test/test_scenarios.rb "*) set -- "$@" redis ;; esac
# A process for each file: one that crashes takes only its own tests with it, and counts as a failure.
for file in "$@"; do
    if [ "$file" = redis ]; then
        ../../tools/redis.sh ruby -W test/test_scenarios.rb >"$report" 2>&1
    else
        ruby -W "$file" >"$report" 2>&1
    fi
    code=$?
    summary=$(sed -n 's/^\([0-9]*\) runs, [0-9]* assertions, \([0-9]*\) failures, \([0-9]*\) errors, \([0-9]*\) skips$/\1 \2 \3 \4/p' "$report" | tail -n 1)
    if [ -z "$summary" ]; then
        failed=$((failed + 1))
        status=1
        echo "$file: died with status $code" >&2
        cat "$report" >&2
        continue
    fi
    # shellcheck disable=SC2086
    set_counts() { runs=$1; bad=$(($2 + $3)); skips=$4; }
    # shellcheck disable=SC2086
    set_counts $summary
    passed=$((passed + runs - bad - skips))
    failed=$((failed + bad))
    grep '^not run: ' "$report"
    if [ "$code" -ne 0 ] || [ "$bad" -ne 0 ]; then
        status=1
        cat "$report" >&2
    fi
    # Ruby's own warnings about this gem are faults as well.
    if grep -E '^[^ ]*(lib/limiter|test/)[^ ]*: warning:' "$report" >&2; then
        failed=$((failed + 1))
        status=1
    fi
done
echo "ruby: $passed passed, $failed failed"
exit $status
