#!/bin/sh
# Builds and tests the C++ binding against an installed liblimiter, and the examples with it:
#   LIMITER_PREFIX=/usr/local bindings/cpp/test.sh [STEP...]
# Steps: warnings unit sanitize scenarios redis consumers examples. Needs g++, clang++, cmake, pkg-config and
# nlohmann-json3-dev. Prints every step's own count and, last, "cpp: N passed, N failed".
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${LIMITER_PREFIX:?set LIMITER_PREFIX to where liblimiter is installed}"
libdir=$LIMITER_PREFIX/lib
PKG_CONFIG_PATH=$libdir/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_PATH LD_LIBRARY_PATH
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0

strict="-Wall -Wextra -Werror -pedantic -Wconversion -Wsign-conversion -Wshadow -Wnon-virtual-dtor"
strict="$strict -Wold-style-cast -Woverloaded-virtual -Wnull-dereference"
# The installed headers count as the user's own, so that their warnings show.
flags="$(pkg-config --cflags limiter) -pthread"
libs=$(pkg-config --libs limiter)
units="values permit client async stress fork memory"

ok() { passed=$((passed + 1)); }
no() { failed=$((failed + 1)); echo "FAILED: $*"; }
# Runs what must succeed, as one test: NAME COMMAND...
one() {
    name=$1; shift
    if "$@" >"$out/log" 2>&1; then ok; else no "$name"; sed 's/^/    /' "$out/log"; fi
}
# Runs a program that prints "N passed, N failed", and adds those: NAME COMMAND...
counted() {
    name=$1; shift
    "$@" >"$out/log" 2>&1; code=$?
    grep -v ' passed, ' "$out/log" | sed 's/^/    /'
    counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$out/log")
    [ -n "$counts" ] || counts="0 1"
    passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))
    echo "$name: ${counts% *} ok, ${counts#* } not"
    if [ $code -ne 0 ] && [ "${counts#* }" -eq 0 ]; then no "$name: exit code $code"; fi
}
build_units() { # OUTPUT COMPILER FLAGS...
    target=$1 compiler=$2; shift 2
    objects=
    for unit in $units; do
        "$compiler" $strict $flags "$@" -c "$here/tests/${unit}_test.cpp" -o "$target-$unit.o" || return 1
        objects="$objects $target-$unit.o"
    done
    "$compiler" $strict $flags "$@" "$here/tests/main.cpp" $objects $libs -o "$target"
}

# Every header by itself, every file with every compiler and both standards: no warning.
step_warnings() {
    for compiler in g++ clang++; do
        for header in "$here"/include/limiter/*.hpp; do
            echo "#include <limiter/$(basename "$header")>" >"$out/header.cpp"
            one "$compiler $(basename "$header")" \
                "$compiler" $strict $flags -std=c++17 -fsyntax-only "$out/header.cpp"
        done
        for standard in 17 20; do
            for source in "$here"/tests/*.cpp "$root"/examples/cpp/*.cpp; do
                case $standard$source in 17*coroutine.cpp) continue ;; esac
                case $source in */scenarios.cpp | */vectors.cpp | */dropped.cpp) continue ;; esac
                one "$compiler C++$standard $(basename "$source")" \
                    "$compiler" $strict $flags -std=c++$standard -fsyntax-only "$source"
            done
        done
    done
    # Every permit that is dropped at once is warned of, and nothing else is.
    drops=$(grep -c '^    \(limiter\|queue\|permit\)[.]' "$here/tests/dropped.cpp")
    for compiler in g++ clang++; do
        one "$compiler warns of $drops dropped permits" sh -c "test $drops -gt 10 -a $drops -eq \$(
            $compiler $flags -std=c++17 -fsyntax-only '$here/tests/dropped.cpp' 2>&1 | grep -c 'warning:.*nodiscard')"
    done
    one "no exceptions, no RTTI" g++ $strict $flags -std=c++17 -fno-exceptions -fno-rtti \
        "$here/tests/no_exceptions.cpp" $libs -o "$out/no_exceptions"
    one "no exceptions: codes" "$out/no_exceptions"
    one "no exceptions: aborts with the message" sh -c \
        "{ '$out/no_exceptions' throw; } 2>&1 | grep -q 'limiter: acquire'"
    one "a throwing callable" g++ $strict $flags -std=c++17 "$here/tests/terminate.cpp" $libs \
        -o "$out/terminate"
    one "a throwing callable terminates" sh -c "'$out/terminate'; test \$? -eq 42"
}

step_unit() {
    for each in "g++ 17" "clang++ 20"; do
        set -- $each
        if build_units "$out/unit-$1" "$1" -std=c++"$2"; then
            counted "unit $1 C++$2" "$out/unit-$1"
        else
            no "unit $1 does not build"
        fi
    done
}

step_sanitize() {
    if build_units "$out/asan" g++ -std=c++17 -g -O1 -fsanitize=address,undefined \
        -fno-sanitize-recover=all -fno-omit-frame-pointer; then
        counted "unit ASan + UBSan" "$out/asan"
    else
        no "sanitizers: does not build"
    fi
}

step_scenarios() {
    for program in scenarios vectors; do
        one "$program builds" g++ $strict $flags -std=c++17 -g -fsanitize=address,undefined \
            -fno-sanitize-recover=all "$here/tests/$program.cpp" $libs -o "$out/$program"
    done
    counted scenarios "$out/scenarios" "$root/tests/scenarios/scenarios.json"
    counted "scenarios on Redis" "$root/tools/redis.sh" "$out/scenarios" \
        "$root/tests/scenarios/scenarios.json"
    counted vectors "$out/vectors" "$root/tests/conformance/vectors.json"
}

step_redis() {
    one "redis builds" g++ $strict $flags -std=c++17 -g "$here/tests/redis_test.cpp" "$here/tests/main.cpp" \
        $libs -o "$out/redis"
    counted redis "$root/tools/redis.sh" "$out/redis"
}

cmake_project() { # SOURCE [CMAKE-OPTION...]
    source=$1
    shift
    build=$out/cmake-$(basename "$source")
    rm -rf "$build"
    cmake -S "$source" -B "$build" -DCMAKE_PREFIX_PATH="$LIMITER_PREFIX" -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_CXX_FLAGS="$strict" "$@" &&
        cmake --build "$build" && (cd "$build" && ctest --output-on-failure)
}

step_consumers() {
    for compiler in g++ clang++; do
        for standard in 17 20; do
            one "find_package consumer, $compiler C++$standard" cmake_project "$here/tests/consumer" \
                -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_STANDARD=$standard
            one "pkg-config consumer, $compiler C++$standard" sh -c "$compiler -std=c++$standard \
                '$here'/tests/consumer/*.cpp \$(pkg-config --cflags --libs limiter) -o '$out/consumer' && '$out/consumer'"
        done
    done
    echo 'unsigned limiter_abi_version(void) { return 99; }' >"$out/abi.c"
    one "a wrong ABI builds" sh -c "cc -shared -fPIC '$out/abi.c' -o '$out/abi.so' &&
        c++ -std=c++17 '$here/tests/wrong_abi.cpp' $flags $libs -o '$out/wrong_abi'"
    one "a wrong ABI is told" sh -c "LD_PRELOAD='$out/abi.so' '$out/wrong_abi' |
        grep 'compiled for liblimiter ABI [0-9]*, but ABI 99 is loaded'"
}

step_examples() {
    one "examples" cmake_project "$root/examples/cpp"
    # The README's first program is the minimal example, letter for letter.
    one "README" sh -c "sed -n '/^\`\`\`cpp/,/^\`\`\`/p' '$here/README.md' | sed '1d;/^\`\`\`/,\$d' |
        diff - '$root/examples/cpp/minimal.cpp'"
}

for step in ${*:-warnings unit sanitize scenarios redis consumers examples}; do
    "step_$step"
done
echo "cpp: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
