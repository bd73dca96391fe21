#!/bin/sh
# Runs a command with a redis-server of its own, whose address it finds in LIMITER_TEST_URL.
#   tools/with_redis.sh COMMAND [ARGUMENT...]
set -u
home=$(mktemp -d) || exit 1
redis-server --port 0 --unixsocket "$home/socket" --save "" --dir "$home" >"$home/log" 2>&1 &
server=$!
trap 'kill $server; rm -rf "$home"' EXIT
# Clients connect when they first ask, and wait for that; so nobody waits here.
LIMITER_TEST_URL="unix://$home/socket" "$@"
