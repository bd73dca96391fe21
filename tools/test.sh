#!/bin/sh
# Runs the test stages, all or the named ones; shows what each did, and the whole log of one that
# failed. A stage passes when it exits 0. The last line counts single tests:
# "test result: ok. N passed; N failed" (cargo) and "name: N passed, N failed" (ours) in its log; a stage
# without such lines counts as one.
#   tools/test.sh [STAGE...]
set -u
cd "$(dirname "$0")/.." || exit 1

# One line per stage, in this order: name | command. Add yours here.
stages() {
    cat <<'END'
format      | cargo fmt --check
lint        | cargo clippy -q --all-targets -- -D warnings
unit        | cargo test -q --no-fail-fast
shuttle     | cargo test -q --features shuttle --test interleavings
build       | tools/build.sh
header      | tests/c/header.sh
abi         | tests/abi/check.sh
c-gcc       | tests/c/run.sh gcc
c-clang     | tests/c/run.sh clang
c-g++       | tests/c/run.sh g++
c-clang++   | tests/c/run.sh clang++
c-asan      | tests/c/run.sh asan
fuzz        | tests/fuzz/replay.sh
c-valgrind  | tests/c/run.sh valgrind
c-redis     | tests/c/run.sh redis
soak        | tests/soak/run.sh 0.5
packaging   | tests/packaging/run.sh
go          | bindings/go/test.sh
ruby        | tools/installed.sh bindings/ruby/test.sh
examples    | tests/examples/run.sh
demo-check  | tests/examples/check.sh
readme      | tests/readme/extract.sh
cpp         | tools/installed.sh bindings/cpp/test.sh
parity      | tests/parity/check.sh
cases       | tests/cases/check.sh
END
}

logs=${CARGO_TARGET_DIR:-target}/test-logs
mkdir -p "$logs"
passed=0 failed=0 bad_stages=

count() { # "passed failed" of a log
    awk '/^test result: / { p += $4; f += $6 }
         /^[^ ]+: [0-9]+ passed, [0-9]+ failed/ { p += $2; f += $4 }
         END { print p + 0, f + 0 }' "$1"
}

run() { # name command
    log=$logs/$1.log
    printf '%-12s ' "$1"
    began=$(date +%s)
    if sh -c "$2" >"$log" 2>&1 </dev/null; then verdict=ok; else verdict=FAILED; fi
    set -- "$1" "$(($(date +%s) - began))" $(count "$log")
    p=$3 f=$4
    if [ $verdict = ok ] && [ "$p" -eq 0 ]; then p=1; fi
    if [ $verdict != ok ]; then
        [ "$f" -gt 0 ] || f=1
        bad_stages="$bad_stages $1"
    fi
    passed=$((passed + p)) failed=$((failed + f))
    printf '%-6s %4d s  %d passed, %d failed\n' "$verdict" "$2" "$p" "$f"
    [ $verdict = ok ] || sed "s/^/    /" "$log"
}

for name in "$@"; do
    stages | grep -q "^$name " || { echo "no stage \"$name\" in tools/test.sh" >&2; exit 2; }
done
stages >"$logs/stages"
while IFS='|' read -r name command <&3; do
    name=$(echo $name)
    case " $* " in '  ' | *" $name "*) run "$name" "$command" ;; esac
done 3<"$logs/stages"

[ -z "$bad_stages" ] || echo "failed:$bad_stages (logs: $logs)"
echo "$passed passed, $failed failed"
[ -z "$bad_stages" ]
