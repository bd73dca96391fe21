#!/bin/sh
# Every row of rows.txt has a test of its own in memory and on Redis, by its number in the test's name, or
# reasons.txt says why it cannot; TABLE.md shows it and must be up to date (CASES_WRITE=1 writes it).
set -u
cd "$(dirname "$0")/../.." || exit 1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
. tests/support/table.sh

# backend | file | name, for each test whose name has a number in it. What a test is run on is known by
# where it stands: tests/c is run on Redis too as far as run.sh says so.
rust() { # BACKEND FILE...: what stands under #[test]
    backend=$1
    shift
    awk -v backend="$backend" 'FNR == 1 { test = 0 }
        test && match($0, /fn b_[0-9a-z_]+/) {
            name = substr($0, RSTART + 3, RLENGTH - 3)
            where = name ~ /_in_memory$/ ? "memory" : backend
            print where "|" FILENAME "|" name
        }
        { test = /^ *#\[test\]/ }' "$@"
}
both() { # FILE...: what on_both! makes two tests of
    awk 'FNR == 1 { list = 0 }
        /^on_both!\[/ { list = 1; next }
        /^\];/ { list = 0 }
        list && match($0, /b_[0-9a-z_]+/) {
            name = substr($0, RSTART, RLENGTH)
            print "memory|" FILENAME "|" name
            print "redis|" FILENAME "|" name
        }' "$@"
}
c() { # FILE...: what is run by name, and rows of tables
    for file in "$@"; do
        grep -oE 'CHECK_TEST\(B_[0-9A-Za-z_]+|^ *\{"B-[^"]+' "$file" |
            sed 's/CHECK_TEST(//; s/^ *{"//' | while read -r name; do
            echo "memory|$file|$name"
            case " $on_redis " in *" $(basename "$file" .c) "*) echo "redis|$file|$name" ;; esac
        done
    done
}
on_redis=$(sed -n 's/.*"$mode" != redis \] || set -- //p' tests/c/run.sh)
ruby() {
    grep -oE 'def test_b_[0-9a-z_]+' "$@" | sed -E 's/^([^:]+):def test_(.*)/\1|\2/' |
        sed -E 's/^(.*_on_redis)$/redis|\1/; t; s/^/memory|/'
}
{
    rust memory tests/memory/*.rs src/*/*.rs
    rust redis tests/redis_backend/*.rs tests/redis_link/*.rs tests/redis_scripts.rs
    rust rules tests/limit/*.rs
    both tests/cases/*.rs
    c tests/c/*.c
    ruby bindings/ruby/test/*.rb
    sed -n 's/^check "\(B-[^"]*\)".*/memory|tests\/packaging\/run.sh|\1/p' tests/packaging/run.sh
} >"$out/tests"
[ "$(wc -l <"$out/tests")" -ge 250 ] || { echo "too few tests found"; cat "$out/tests"; exit 1; }

cell() { # ROW BACKEND
    number=${1#B-}
    found=$(grep -E "^$2\\|[^|]*\\|([bB][-_][0-9]+[-_ ])*[bB][-_]$number[-_ ]" "$out/tests" |
        awk -F'|' '{ file = $2; sub("^tests/", "", file); print file ": " $3 }' | sort |
        awk '{ printf "%s`%s`", (NR > 1 ? "<br>" : ""), $0 }')
    reason=$(awk -F ' [|] ' -v row="$1" -v backend="$2" '$1 == row && $2 == backend { print $3 }' \
        tests/cases/reasons.txt)
    if [ "$2" = rules ]; then
        :
    elif [ -n "$found" ] && [ -n "$reason" ]; then
        echo "$1 has a test on $2, but reasons.txt says why it has none" >>"$out/wrong"
    elif [ -z "$found" ] && [ -z "$reason" ]; then
        echo "$1 has no test on $2, and reasons.txt does not say why" >>"$out/wrong"
    fi
    echo "${found:-${reason:+— $reason}}"
}

{
    echo "# The tests of each reported bug"
    echo
    echo "Written by tests/cases/check.sh: rows are bugs that were reported of other limiters in public, by"
    echo "the numbers of our list. What stands under a backend is run on it; what stands under rules tries"
    echo "src/limit alone, which memory is made of and the scripts are held equal to."
    echo
    echo "| row | about | memory | Redis | rules |"
    echo "|---|---|---|---|---|"
    while IFS='|' read -r row about; do
        row=${row% }
        echo "| $row |$about | $(cell "$row" memory) | $(cell "$row" redis) | $(cell "$row" rules) |"
    done <tests/cases/rows.txt
} >"$out/TABLE.md"

# Every number and every reason is of a row that there is.
{
    grep -v '^#' tests/cases/reasons.txt | sed 's/ .*//'
    cut -d'|' -f3 "$out/tests" | grep -oE '[bB][-_][0-9]{3}' | tr 'b_' 'B-'
} | sort -u | while read -r row; do
    grep -q "^$row " tests/cases/rows.txt || echo "rows.txt: no row $row" >>"$out/wrong"
done

judge_table cases $(($(wc -l <tests/cases/rows.txt) * 2)) "${CASES_WRITE:-}"
