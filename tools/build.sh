#!/bin/sh
# The builds the C tests link: release (what ships) and debug (assertions on), as .so and .a.
set -eu
cargo build -q --release --lib
cargo build -q --lib
