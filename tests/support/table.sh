# Sourced by the checks that write a table into $out/TABLE.md and what is wrong, a line each, into $out/wrong:
# compares the table with the committed one, which it writes instead if asked to, says how many passed, and
# answers whether all did.
#   judge_table NAME CELLS WRITE    NAME is of the check and its folder; WRITE is the value of NAME_WRITE
judge_table() {
    failed=0
    [ ! -f "$out/wrong" ] || { cat "$out/wrong"; failed=$(wc -l <"$out/wrong"); }
    passed=$(($2 - failed))
    [ -z "$3" ] || cp "$out/TABLE.md" "tests/$1/TABLE.md"
    if diff -u "tests/$1/TABLE.md" "$out/TABLE.md"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "tests/$1/TABLE.md is out of date: $(echo "$1" | tr a-z A-Z)_WRITE=1 tests/$1/check.sh writes it"
    fi
    echo "$1: $passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
