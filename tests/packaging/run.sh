#!/bin/sh
# Installs into temporary folders and uses the result the ways users do: pkg-config and CMake, C and
# C++, shared and static, DESTDIR for packagers, dlopen; then uninstalls.
set -eu
cd "$(dirname "$0")/../.."
here=$PWD/tests/packaging
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
passed=0 failed=0
check() { # name command...
    name=$1
    shift
    if "$@" >"$room/log" 2>&1; then
        passed=$((passed + 1))
        echo "  ok     $name"
    else
        failed=$((failed + 1))
        echo "  FAILED $name: $*"
        sed 's/^/    /' "$room/log"
    fi
}
is() { [ "$1" = "$2" ] || { echo "\"$1\" is not \"$2\""; return 1; }; }
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
abi=$(sed -n 's/^#define LIMITER_ABI //p' include/limiter.h)
cc="gcc -std=c99 -Wall -Wextra -Werror -pedantic"
cxx="g++ -std=c++11 -Wall -Wextra -Werror -pedantic"

# Names with a space break what is quoted badly.
prefix="$room/a prefix"
plain=$room/plain
check "install" make -s install PREFIX="$prefix"
make -s install PREFIX="$plain"

lib=$prefix/lib
check "the real file" test -f "$lib/liblimiter.so.$version" -a ! -L "$lib/liblimiter.so.$version"
check "the loader's name" is "$(readlink "$lib/liblimiter.so.$abi")" "liblimiter.so.$version"
check "the linker's name" is "$(readlink "$lib/liblimiter.so")" "liblimiter.so.$abi"
check "SONAME" is "$(readelf -dW "$lib/liblimiter.so" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')" \
    "liblimiter.so.$abi"
check "no debug information" sh -c "! readelf -SW '$lib/liblimiter.so' | grep -q debug_"
check "exports what was built" is "$(nm -D --defined-only "$lib/liblimiter.so" | awk '{print $NF}')" \
    "$(cat tests/abi/symbols.txt)"
check "the header" cmp include/limiter.h "$prefix/include/limiter.h"
check "no path of the build" sh -c "! grep -rqF '$PWD' '$lib/pkgconfig' '$lib/cmake'"

# pkg-config. From here on only the installed tree is used: the work folder is elsewhere.
pc() { PKG_CONFIG_PATH=$plain/lib/pkgconfig pkg-config "$@"; }
cd "$room"
cp "$here/consumer.c" "$here/plugin.c" .
check "pkg-config knows it" is "$(pc --modversion limiter)" "$version"
check "pkg-config flags" is "$(pc --cflags --libs limiter | xargs)" \
    "-I$plain/include -L$plain/lib -llimiter"
rpath="-Wl,-rpath,$plain/lib"
check "C, shared, builds" $cc consumer.c -o c_shared $(pc --cflags --libs limiter) "$rpath"
check "C, shared, runs" ./c_shared
check "C, shared, without rpath" $cc consumer.c -o c_found $(pc --cflags --libs limiter)
check "C, shared, found by LD_LIBRARY_PATH" env LD_LIBRARY_PATH="$plain/lib" ./c_found
check "needs the SONAME" is "$(readelf -dW c_shared | sed -n 's/.*(NEEDED).*\[\(liblimiter.*\)\]/\1/p')" \
    "liblimiter.so.$abi"
check "C++, shared, builds" $cxx -x c++ consumer.c -o cpp_shared $(pc --cflags --libs limiter) "$rpath"
check "C++, shared, runs" ./cpp_shared
static="-Wl,-Bstatic -llimiter -Wl,-Bdynamic $(pc --static --libs limiter | sed 's/-llimiter//')"
check "C, static, builds" $cc consumer.c -o c_static $(pc --cflags limiter) "-L$plain/lib" $static
check "C, static, runs" ./c_static
check "C, the archive as README links it, builds" $cc consumer.c -o c_archive $(pc --cflags limiter) \
    "$(pc --variable=libdir limiter)/liblimiter.a" -pthread -ldl -lm
check "C, the archive, runs" ./c_archive
check "C++, static, builds" $cxx -x c++ consumer.c -o cpp_static $(pc --cflags limiter) "-L$plain/lib" $static
check "C++, static, runs" ./cpp_static
check "static needs no .so" sh -c '! readelf -dW c_static c_archive cpp_static | grep NEEDED | grep liblimiter'

# CMake, in the folder with the space; then the same tree moved elsewhere.
cmake_works() { # where version-wanted
    rm -rf "$room/build"
    cmake -S "$here" -B "$room/build" -DCMAKE_PREFIX_PATH="$1" -DWANTED="$2" &&
        cmake --build "$room/build" --parallel 2 &&
        for program in c_limiter cpp_limiter c_static cpp_static; do "$room/build/$program" || return 1; done
}
check "CMake, C and C++, shared and static" cmake_works "$prefix" ""
check "CMake, this version" cmake_works "$prefix" "$version"
check "CMake refuses a later one" sh -c "! cmake -S '$here' -B '$room/later' -DCMAKE_PREFIX_PATH='$prefix' -DWANTED=$((${version%%.*} + 1)).0"
check "CMake refuses a minor one to come" sh -c "! cmake -S '$here' -B '$room/later' -DCMAKE_PREFIX_PATH='$prefix' -DWANTED=${version%%.*}.999"
mv "$prefix" "$room/moved"
check "CMake, a moved tree" cmake_works "$room/moved" ""

# Two copies loaded at run time, closed while they have threads.
cp "$plain/lib/liblimiter.so.$version" "$room/another.so"
check "dlopen host builds" $cc -I"$plain/include" plugin.c -o plugin -ldl
check "B-140 dlopen, dlclose, two copies" ./plugin "$plain/lib/liblimiter.so" "$room/another.so"

# DESTDIR: what a packager does; the files speak of the final place.
cd "$here/../.."
stage=$room/stage
check "install DESTDIR" make -s install DESTDIR="$stage" PREFIX=/usr LIBDIR=/usr/lib/somewhere
pc=$stage/usr/lib/somewhere/pkgconfig/limiter.pc
check "no DESTDIR in the files" sh -c "! grep -rqF '$stage' '$stage/usr/lib/somewhere/pkgconfig' '$stage/usr/lib/somewhere/cmake'"
check "the final place in limiter.pc" is \
    "$(PKG_CONFIG_PATH=${pc%/*} pkg-config --variable=libdir limiter)" /usr/lib/somewhere
check "from the stage by sysroot" $cc "$here/consumer.c" -o "$room/staged" \
    $(PKG_CONFIG_SYSROOT_DIR=$stage PKG_CONFIG_LIBDIR=${pc%/*} pkg-config --define-variable=prefix=/usr \
        --cflags --libs limiter) "-I$stage/usr/include" "-L$stage/usr/lib/somewhere" \
    "-Wl,-rpath,$stage/usr/lib/somewhere"
check "runs from the stage" "$room/staged"
check "CMake from the stage" cmake_works "$stage/usr/lib/somewhere/cmake/limiter" ""

check "install STRIP=:" make -s install STRIP=: DESTDIR="$stage" PREFIX=/usr LIBDIR=/usr/lib/somewhere
check "all debug information" cmp "${CARGO_TARGET_DIR:-target}/release/liblimiter.so" \
    "$stage/usr/lib/somewhere/liblimiter.so"

check "uninstall DESTDIR" make -s uninstall DESTDIR="$stage" PREFIX=/usr LIBDIR=/usr/lib/somewhere
check "nothing left there" is "$(find "$stage" ! -type d)" ""
touch "$plain/lib/liblimiter.sox"
check "uninstall" make -s uninstall PREFIX="$plain"
check "only a stranger's file left" is "$(find "$plain" ! -type d)" "$plain/lib/liblimiter.sox"
check "uninstall twice" make -s uninstall PREFIX="$plain"
check "no CMake folder left" test ! -e "$plain/lib/cmake/limiter"

echo "packaging: $passed passed, $failed failed"
[ "$failed" = 0 ]
