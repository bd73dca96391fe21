#!/bin/sh
# Compiles and runs every snippet of README.md that is marked as runnable, by a comment above it:
#   <!-- run: NAME.c -->   a whole program, the same text as examples/c/NAME.c
#   <!-- run: body -->     statements; prelude.c and epilogue.c of this folder go around them
#   <!-- run: front.X -->  the same program in another language, against an installed library
#   <!-- run: acl -->      the rights of a Redis user; acl.sh of this folder tries them
# Then claims.c: what the text promises, as assertions.
# LIMITER_LIBDIR (default: target/release) holds liblimiter.so, LIMITER_PREFIX is where it is installed
# (default: nowhere yet); CC and CXX are the compilers.
set -eu
cd "$(dirname "$0")/../.."
[ -n "${LIMITER_PREFIX:-}" ] || exec tools/installed.sh tests/readme/extract.sh
libdir=$(cd "${LIMITER_LIBDIR:-${CARGO_TARGET_DIR:-target}/release}" && pwd)
compiler=${CC:-cc}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# As installed: the name the linker looks for, and the one programs load.
ln -s "$libdir/liblimiter.so" "$out/liblimiter.so"
ln -s liblimiter.so "$out/liblimiter.so.0"

awk -v out="$out" '
    /^<!-- run: .* -->$/ { mark = $3; next }
    mark ~ /^front[.]/ && /^```(cpp|go|ruby)$/ { file = out "/" mark; next }
    mark == "acl" && /^```sh$/ { file = out "/acl"; next }
    mark != "" && /^```c$/ { file = out "/" ++count "-" (mark == "body" ? "body.c" : mark); next }
    file != "" && /^```$/ { close(file); file = mark = ""; next }
    file != "" { print > file }
    END { if (mark != "") { print "README.md: a mark without its snippet" > "/dev/stderr"; exit 1 } }
' README.md

snippets=0
for snippet in "$out"/*.c; do
    name=$(basename "$snippet" .c)
    example=examples/c/${name#*-}.c
    case $name in
        *-body)
            { cat tests/readme/prelude.c; cat "$snippet"; cat tests/readme/epilogue.c; } >"$out/whole"
            mv "$out/whole" "$snippet"
            ;;
        *) diff -u "$example" "$snippet" ;;
    esac
    "$compiler" -std=c99 -Wall -Wextra -Werror -pedantic -Iinclude -o "$out/$name" "$snippet" \
        -L"$out" -Wl,-rpath,"$out" -llimiter
    "$out/$name"
    snippets=$((snippets + 1))
done
[ "$snippets" -ge 3 ] || { echo "README.md: only $snippets runnable snippets found" >&2; exit 1; }

# The front page's program says the same in every language.
"$out"/*-minimal >"$out/said-c"
(
    PKG_CONFIG_PATH=$LIMITER_PREFIX/lib/pkgconfig
    LD_LIBRARY_PATH=$LIMITER_PREFIX/lib
    LIMITER_LIB=$LIMITER_PREFIX/lib/liblimiter.so.0
    # What pkg-config said is no part of the key that Go caches packages by; this is.
    CGO_LDFLAGS="-O2 -g -L$LIMITER_PREFIX/lib"
    export PKG_CONFIG_PATH LD_LIBRARY_PATH LIMITER_LIB CGO_LDFLAGS
    # shellcheck disable=SC2046 # a list of words
    "${CXX:-c++}" -std=c++17 -Wall -Wextra -Werror -pedantic -o "$out/front-cpp" "$out/front.cpp" \
        $(pkg-config --cflags --libs limiter)
    "$out/front-cpp" >"$out/said-cpp"
    mkdir "$out/go"
    cp "$out/front.go" "$out/go/main.go"
    sed "s|=> .*|=> $PWD/bindings/go|" examples/go/go.mod >"$out/go/go.mod"
    [ -z "$(gofmt -l "$out/go")" ] || { echo "README.md: not as gofmt has it" >&2; exit 1; }
    (cd "$out/go" && go vet . && go run .) >"$out/said-go"
    ruby -W -I bindings/ruby/lib "$out/front.rb" >"$out/said-ruby"
)
for language in cpp go ruby; do
    diff "$out/said-c" "$out/said-$language" || { echo "README.md: $language says otherwise" >&2; exit 1; }
    snippets=$((snippets + 1))
done

"$compiler" -std=c99 -Wall -Wextra -Werror -pedantic -Iinclude -o "$out/acl-test" tests/readme/acl.c \
    -L"$out" -Wl,-rpath,"$out" -llimiter
tools/redis.sh tests/readme/acl.sh "$out/acl" "$out/acl-test"
snippets=$((snippets + 1))

# Links to files of this repository lead somewhere.
grep -oh ']([^)#]*)' README.md CONTRIBUTING.md CHANGELOG.md | sed 's/^](//; s/)$//' | grep -v '^http' |
    while read -r link; do
        [ -e "$link" ] || { echo "README.md: a link to $link leads nowhere" >&2; exit 1; }
    done
echo "readme: $snippets passed, 0 failed"

"$compiler" -std=c99 -Wall -Wextra -Werror -pedantic -Iinclude -o "$out/claims" tests/readme/claims.c \
    -L"$out" -Wl,-rpath,"$out" -llimiter
"$out/claims"
