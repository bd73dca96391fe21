#!/bin/sh
# Tests the Go binding against liblimiter as it is installed: in LIMITER_PREFIX; or else this tree's
# release build, installed for it below the target folder; or else where pkg-config finds one by itself.
# The last line is `go: N passed, N failed`; exits 0 only if none failed. QUICK=1 leaves out the race
# detector and cgocheck2, which build the standard library again.
set -u
cd "$(dirname "$0")" || exit 1
root=$(cd ../.. && pwd)
command -v go >/dev/null || { echo "Go 1.24 or later is needed: https://go.dev/dl"; exit 1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

target=${CARGO_TARGET_DIR:-$root/target}
if [ -z "${LIMITER_PREFIX:-}" ] && [ -f "$target/release/liblimiter.so" ]; then
    # Always the same folder: Go builds the standard library again where a flag changes.
    LIMITER_PREFIX=$target/go-test
    rm -rf "$LIMITER_PREFIX"
    make -s -C "$root" install PREFIX="$LIMITER_PREFIX" || exit 1
fi
if [ -n "${LIMITER_PREFIX:-}" ]; then
    for dir in "$LIMITER_PREFIX"/lib/pkgconfig "$LIMITER_PREFIX"/lib/*/pkgconfig; do
        [ -f "$dir/limiter.pc" ] && PKG_CONFIG_PATH=$dir${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
    done
fi
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir limiter) || exit 1
header=$(pkg-config --variable=includedir limiter)/limiter.h
export LD_LIBRARY_PATH="$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# Go's build cache knows neither what pkg-config answered nor what the header holds; it knows these.
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g} -DLIMITER_TEST_HEADER=$(cksum <"$header" | cut -d ' ' -f 1)"
export CGO_LDFLAGS="${CGO_LDFLAGS:--O2 -g} -L$libdir"

passed=0
failed=0

# stage NAME COMMAND...: a check that is one test.
stage() {
    name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
        cat "$work/out"
    fi
}

# tests NAME COMMAND...: `go test -v`, each test and subtest counted.
tests() {
    name=$1
    shift
    "$@" >"$work/out" 2>&1
    code=$?
    passed=$((passed + $(grep -c '^ *--- PASS' "$work/out")))
    bad=$(grep -c '^ *--- FAIL' "$work/out")
    if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1 # did not build, crashed, or left goroutines behind
    fi
    failed=$((failed + bad))
    if [ "$code" -ne 0 ]; then
        echo "FAILED: $name"
        grep -v '^ *--- PASS\|^=== ' "$work/out"
    fi
    grep '^ *--- SKIP' "$work/out" | sed "s/^ */$name: /"
}

formatted() { test -z "$(gofmt -l . ../../examples/go)"; }
documented() { go doc -all . && go doc -all ./httplimit; }

# every exported verb has an example, and every constructor and option is used in one
exampled() {
    missing=0
    for made in $(go doc -all . | sed -n 's/^func \([A-Z][A-Za-z]*\)(.*/limiter.\1(/p; s/^func (l Limit) \([A-Z][A-Za-z]*\)(.*) Limit$/).\1(/p'); do
        grep -qF "$made" example_test.go example_options_test.go || { echo "no example uses $made" && missing=1; }
    done
    for verb in $(go doc -all . | sed -n 's/^func ([a-z]* \*\(Limiter\|Client\)) \([A-Z][A-Za-z]*\)(.*/\1_\2/p'); do
        case $verb in Limiter_Name | Limiter_Limits | Limiter_String) continue ;; esac
        grep -q "func Example$verb\b" example_test.go || { echo "no example of $verb" && missing=1; }
    done
    return $missing
}

stage gofmt formatted
stage "go vet" go vet -tags redis ./...
stage "go doc" documented
stage examples exampled
stage "go vet of examples" sh -c 'cd ../../examples/go && go vet ./...'
tests "go test" go test -count=1 -v ./...
tests "on Redis" ../../tools/redis.sh go test -count=1 -v -tags redis -run '^(TestScenarios|TestRedis.*)$' .
tests "example programs" sh -c 'cd ../../examples/go && go test -count=1 -v ./...'
if [ -z "${QUICK:-}" ]; then
    tests "race detector" go test -count=1 -short -race -v ./...
    tests cgocheck2 env GOEXPERIMENT=cgocheck2 go test -count=1 -short -v ./...
fi
echo "go: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
