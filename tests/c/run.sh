#!/bin/sh
# Compiles every tests/c/*.c against the committed header with one compiler and runs it.
#   tests/c/run.sh gcc|clang|g++|clang++|asan|valgrind|redis [TEST...]
# gcc takes the release .so, clang the debug .so, the C++ compilers the archives; asan builds library
# and tests with AddressSanitizer and LeakSanitizer; valgrind runs the clang build under memcheck; redis
# runs, on a server of its own, those that say what limits do.
set -eu
cd "$(dirname "$0")/../.."
mode=${1:?"usage: tests/c/run.sh gcc|clang|g++|clang++|asan|valgrind|redis [TEST...]"}
shift
target=${CARGO_TARGET_DIR:-target}
out=$target/c-tests/$mode
mkdir -p "$out"
if [ $# = 0 ]; then
    set -- $(cd tests/c && ls ./*.c | sed 's|^\./||; s|\.c$||')
    # Memcheck takes a part that uses every function; the rest is the same code with other numbers.
    [ "$mode" != valgrind ] || set -- lifecycle bad_config bad_limits bad_calls queue callback hooks \
        waiting observe fork descriptors exit
    [ "$mode" != redis ] || set -- scenarios vectors cases_rates cases_semaphores pace
fi

warnings="-Wall -Wextra -Werror -pedantic"
c_flags="-std=c99 $warnings -g -Iinclude"
cxx_flags="-std=c++11 $warnings -g -Iinclude"
system="-pthread -ldl -lm"
wrap=
# As installed: the name the linker looks for, and the one programs load.
shared() {
    abi=$(sed -n 's/^#define LIMITER_ABI //p' include/limiter.h)
    ln -sf "$(cd "$1" && pwd)/liblimiter.so" "$out/liblimiter.so"
    ln -sf liblimiter.so "$out/liblimiter.so.$abi"
    echo "-L$out -Wl,-rpath,$(cd "$out" && pwd) -llimiter $system"
}

case $mode in
gcc) compile="gcc $c_flags" link=$(shared "$target/release") ;;
clang) compile="clang $c_flags" link=$(shared "$target/debug") ;;
g++) compile="g++ $cxx_flags -x c++" link="-x none $target/release/liblimiter.a $system" ;;
clang++) compile="clang++ $cxx_flags -x c++" link="-x none $target/debug/liblimiter.a $system" ;;
asan)
    host=$(rustc -vV | sed -n 's/^host: //p')
    RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$target/asan \
        cargo rustc -q --lib --target "$host" --crate-type staticlib
    compile="clang $c_flags -fsanitize=address -fno-omit-frame-pointer"
    link="$target/asan/$host/debug/liblimiter.a $system"
    export CHECK_SCALE=10 ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1
    ;;
valgrind)
    compile="clang $c_flags -gdwarf-4" link=$(shared "$target/debug")
    export CHECK_SCALE=40
    # --trace-children: exit.c starts itself anew.
    wrap="valgrind -q --error-exitcode=9 --trace-children=yes"
    ;;
redis)
    compile="clang $c_flags" link=$(shared "$target/debug")
    export CHECK_SCALE=20
    wrap=tools/redis.sh
    ;;
*) echo "unknown mode $mode" >&2; exit 2 ;;
esac

printf '%s\n' "$@" | xargs -P "$(nproc)" -I NAME sh -c "$compile tests/c/NAME.c -o $out/NAME $link" || {
    echo "tests/c: does not compile with $mode" >&2
    exit 1
}
status=0
for name in "$@"; do
    leaks=
    if [ "$mode" = valgrind ]; then
        case $name in
        # A forked child leaves alone what it inherits, and who exits in the middle frees nothing.
        fork | descriptors | exit) leaks=--leak-check=no ;;
        *) leaks="--leak-check=full --show-leak-kinds=definite,possible" ;;
        esac
    fi
    $wrap $leaks "$out/$name" || status=1
done
exit $status
