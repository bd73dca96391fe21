#!/bin/sh
# Gives a user the rights that README.md's snippet gives, then does everything as that user:
#   tools/redis.sh tests/readme/acl.sh SNIPPET PROGRAM
# No command may have been refused, and the commands are those that the scripts and the link use.
set -eu
snippet=$1 program=$2
socket=${LIMITER_URL#unix://}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
real=$(command -v redis-cli)
printf '#!/bin/sh\nexec "%s" -s "%s" "$@"\n' "$real" "$socket" >"$bin/redis-cli"
chmod +x "$bin/redis-cli"
PATH=$bin:$PATH

said=$(sh -eu "$snippet")
[ "$said" = OK ] || { echo "README.md: ACL: $said" >&2; exit 1; }
redis-cli ACL SETUSER default resetpass '>for the test alone' >/dev/null
REDISCLI_AUTH='for the test alone'
export REDISCLI_AUTH
"$program" "$LIMITER_URL?user=limiter&pass=a-long-password"
refused=$(redis-cli ACL LOG)
[ -z "$refused" ] || { echo "README.md: ACL: refused: $refused" >&2; exit 1; }

grep -o '+[a-z|]*' "$snippet" | sort >"$bin/granted"
{
    grep -oh "'[A-Z]\{3,\}'" scripts/*.lua | tr -d "'" | grep -v 'WITHSCORES\|LIMIT$' | tr A-Z a-z
    printf '%s\n' eval evalsha ping subscribe 'client|setname' 'role' 'cluster|slots' asking select
} | sort -u | sed 's/^/+/' >"$bin/used"
diff -u "$bin/used" "$bin/granted" || { echo "README.md: ACL: - is missing, + is not used" >&2; exit 1; }
