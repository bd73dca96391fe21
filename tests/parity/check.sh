#!/bin/sh
# Every function of include/limiter.h is called by each binding, or tests/parity/reasons.txt says why not;
# TABLE.md shows it and must be up to date (PARITY_WRITE=1 writes it).
set -u
cd "$(dirname "$0")/../.." || exit 1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. tests/support/table.sh

# The sources of a binding, and what a call of function $2 looks like in them.
sources() {
    case $1 in
        cpp) find bindings/cpp/include -name '*.hpp' ;;
        go) find bindings/go -name '*.go' ! -name '*_test.go' ;;
        ruby) find bindings/ruby/lib -name '*.rb' ;;
    esac | sort
}
call() {
    case $1 in
        cpp | go) echo "(^|[^a-z_])$2([^a-z_]|\$)" ;;
        ruby) echo "(^|[^a-z_])native :${2#limiter_}[^a-z_]|[^a-z_]:$2[^a-z_]" ;;
    esac
}

# Functions that the library exports; the static inline ones are made by each language for itself.
awk '/^LIMITER_API/ { inside = 1 } inside; /;/ { inside = 0 }' include/limiter.h |
    grep -o 'limiter_[a-z_]*(' | tr -d '(' >"$out/functions"
[ "$(wc -l <"$out/functions")" -ge 35 ] || { echo "include/limiter.h: too few functions found"; exit 1; }

bindings=
for binding in cpp go ruby; do
    [ -n "$(sources $binding 2>/dev/null)" ] && bindings="$bindings $binding"
done

cell() { # FUNCTION BINDING: the files that call it, or the reason
    # Comments do not call.
    files=$(for file in $(sources "$2"); do
        sed -E 's,^[[:space:]]*(//|#).*,,' "$file" | grep -qE "$(call "$2" "$1")" && basename "$file"
    done | tr '\n' ' ' | sed 's/ $//; s/ /, /g')
    reason=$(awk -F ' [|] ' -v f="$1" -v b="$2" '$1 == f && $2 == b { print $3 }' tests/parity/reasons.txt)
    if [ -n "$files" ] && [ -n "$reason" ]; then
        echo "$2 calls $1 ($files), but reasons.txt says why it does not" >>"$out/wrong"
    elif [ -z "$files" ] && [ -z "$reason" ]; then
        echo "$2 does not call $1, and reasons.txt does not say why" >>"$out/wrong"
    fi
    echo "${files:-— $reason}"
}

{
    echo "# What each binding calls"
    echo
    echo "Written by tests/parity/check.sh: the sources that call a function, or why none does."
    echo
    printf '| function |'; for binding in $bindings; do printf ' %s |' "$binding"; done; echo
    printf '|---|'; for binding in $bindings; do printf -- '---|'; done; echo
    while read -r function; do
        printf '| `%s` |' "$function"
        for binding in $bindings; do printf ' %s |' "$(cell "$function" "$binding")"; done
        echo
    done <"$out/functions"
} >"$out/TABLE.md"

# Every reason is about a function that there is.
grep -v '^#' tests/parity/reasons.txt | sed 's/ .*//' | sort -u | while read -r function; do
    grep -qx "$function" "$out/functions" || echo "reasons.txt: no function $function" >>"$out/wrong"
done

judge_table parity $(($(wc -l <"$out/functions") * $(echo $bindings | wc -w))) "${PARITY_WRITE:-}"
