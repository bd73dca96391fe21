#!/bin/sh
# Installs what `make demo` or `make test` needs and this machine lacks (Debian and its kin).
#   tools/setup.sh demo|redis|bench|test
# `redis` is the demo with a redis-server of its own; `bench` leaves out the peers of a language that is not
# there.
# One line per need: who needs it, a command that succeeds where it is there, the Debian package.
set -eu

needs() {
    cat <<'END'
demo | command -v cc                         | gcc libc6-dev
redis | command -v redis-server              | redis-server
bench | command -v python3                   | python3
bench | command -v valgrind                  | valgrind
bench | dpkg_has libc6-dbg                   | libc6-dbg
bench | command -v pkg-config                | pkg-config
bench | python3 -c "import ensurepip"        | python3-venv
test | command -v c++                        | g++
test | command -v clang                      | clang
test | command -v clang++                    | clang
test | asan_runtime                          | libclang-rt-CLANG-dev
test | command -v readelf                    | binutils
test | command -v abidiff                    | abigail-tools
test | command -v cmake                      | cmake
test | test -f /usr/include/nlohmann/json.hpp | nlohmann-json3-dev
test | command -v openssl                    | openssl
test | command -v redis-sentinel             | redis-sentinel
test | command -v redis-cli                  | redis-tools
test | command -v gem                        | ruby
test | ruby -e 'require "ffi"'               | ruby-ffi
test | ruby -e 'require "rack"'              | ruby-rack
test | command -v puma                       | puma
test | command -v sidekiq                    | ruby-sidekiq
END
}

# What clang -fsanitize=address links. Debian packs it apart from the compiler, by the compiler's version:
# so it is asked for when clang is there, in a second round.
asan_runtime() {
    ! command -v clang || test -f "$(clang -print-file-name="libclang_rt.asan-$(uname -m).a")" ||
        ls "$(clang -print-resource-dir)/lib/linux/libclang_rt.asan-$(uname -m).a"
}

clang_version() {
    clang -dumpversion 2>/dev/null | cut -d. -f1
}

dpkg_has() { # valgrind cannot start without the C library's symbols
    ! command -v dpkg-query || dpkg-query -W -f '${Status}' "$1" | grep -q 'ok installed'
}

wanted() { # does $1 (this line's purpose) belong to $purpose? Each needs all of those before it
    case $purpose in
        demo) [ "$1" = demo ] ;;
        redis) [ "$1" = demo ] || [ "$1" = redis ] ;;
        bench) [ "$1" != test ] ;;
        *) true ;;
    esac
}

missing_packages() {
    needs | while IFS='|' read -r who probe package; do
        wanted "$(echo $who)" || continue
        eval "$probe" >/dev/null 2>&1 || echo "$package" | sed "s/CLANG/$(clang_version)/"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    elif command -v sudo >/dev/null; then
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    else
        return 1
    fi
}

install_packages() {
    packages=$(missing_packages | tr -s ' \n' ' ')
    [ -n "${packages# }" ] || return 0
    echo "installing:$(printf ' %s' $packages)"
    if ! command -v apt-get >/dev/null; then
        echo "error: this machine has no apt-get; please install the like of: $packages" >&2
        exit 1
    fi
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        echo "error: neither root nor sudo here; please run: apt-get install $packages" >&2
        exit 1
    fi
    log=$(mktemp)
    # shellcheck disable=SC2086 # a list of words
    if ! { as_root apt-get update -q &&
           as_root apt-get install -q -y --no-install-recommends $packages; } >"$log" 2>&1; then
        cat "$log" >&2
        echo "error: could not install: $packages" >&2
        exit 1
    fi
    rm -f "$log"
}

check_rust() {
    if ! command -v cargo >/dev/null; then
        echo "error: Rust 1.88 or later is needed: https://rustup.rs" >&2
        exit 1
    fi
    [ "$purpose" = test ] || return 0
    for tool in clippy rustfmt; do
        case $tool in clippy) probe="cargo clippy --version" ;; *) probe="cargo fmt --version" ;; esac
        $probe >/dev/null 2>&1 || rustup component add "$tool" || {
            echo "error: cargo's $tool is missing and rustup could not add it" >&2
            exit 1
        }
    done
}

usage="usage: tools/setup.sh demo|redis|bench|test"
purpose=${1:?"$usage"}
case $purpose in demo | redis | bench | test) ;; *) echo "$usage" >&2; exit 2 ;; esac
install_packages
install_packages # what depends on the first round
check_rust
