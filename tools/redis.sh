#!/bin/sh
# Runs a command beside a redis-server of its own, whose URL is LIMITER_URL to the command (LIMITER_TEST_URL
# to tests that run in memory without it), and stops the server when the command has ended, or was
# interrupted.
#   tools/redis.sh COMMAND...
# The server listens on a socket in a temporary folder and writes nothing to disk. REDIS_SERVER_OPTIONS
# are added to its own.
set -u
folder=$(mktemp -d) || exit 1
server=
stop() {
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null
        while kill -0 "$server" 2>/dev/null; do sleep 0.05; done
    fi
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# In a session of its own: a terminal's Ctrl-C is for the command.
# shellcheck disable=SC2086 # a list of words
setsid redis-server --port 0 --unixsocket "$folder/redis" --dir "$folder" --pidfile "$folder/pid" \
    --daemonize yes --logfile "$folder/log" --save '' --maxmemory-policy noeviction \
    ${REDIS_SERVER_OPTIONS:-} >"$folder/said" 2>&1
tries=0
until [ -S "$folder/redis" ] && server=$(cat "$folder/pid" 2>/dev/null) && [ -n "$server" ]; do
    tries=$((tries + 1))
    if [ $tries -gt 200 ]; then
        cat "$folder/said" "$folder/log" >&2
        echo "error: redis-server did not start" >&2
        exit 2
    fi
    sleep 0.05
done
LIMITER_URL=unix://$folder/redis
LIMITER_TEST_URL=$LIMITER_URL
export LIMITER_URL LIMITER_TEST_URL

# A shell that waits for a command in the foreground does not hear what it is told meanwhile.
"$@" &
command=$!
trap : INT # the command has heard it too
trap 'kill -TERM "$command"' TERM
while :; do
    wait "$command"
    code=$?
    kill -0 "$command" 2>/dev/null || exit $code
done
