#!/bin/sh
# Processes in C, Go and Ruby share limits while clients, servers and what lies between them fail; what they
# told is judged (harness). Against the library that is installed in LIMITER_PREFIX; see tools/installed.sh.
#   tests/nemesis/run.sh [SECONDS [SEED [TOPOLOGY...]]]    seconds of trouble for each of: alone sentinel cluster
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-10} seed=${2:-1}
[ $# -eq 0 ] || shift
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- alone sentinel cluster
lib=$LIMITER_PREFIX/lib
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
LIMITER_LIB=$lib/liblimiter.so.0
export PKG_CONFIG_PATH LD_LIBRARY_PATH LIMITER_LIB

cc -std=c99 -O2 -Wall -Wextra -Werror -pedantic -pthread -o "$work/client-c" tests/nemesis/client.c \
    $(pkg-config --cflags --libs limiter)
(cd tests/nemesis/client && go vet . && go build -o "$work/client-go" .)
printf '#!/bin/sh\nexec ruby -W -I%s/bindings/ruby/lib %s/tests/nemesis/client.rb "$@"\n' "$PWD" "$PWD" >"$work/client-ruby"
chmod +x "$work/client-ruby"
# Not by `cargo run`, which puts folders of its own builds before those that the clients load the library from.
cargo build -q --example nemesis
"${CARGO_TARGET_DIR:-target}/debug/examples/nemesis" "$work" "$seconds" "$seed" "$@"
