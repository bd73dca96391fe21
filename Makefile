# Everything a user or developer runs. `make` lists it.
#
# CARGO_TARGET_DIR is respected; PREFIX, LIBDIR, INCLUDEDIR and DESTDIR mean what they usually do.
# STRIP=: installs with the debug information, which is most of what is built.

CARGO ?= cargo
CC ?= cc
STRIP ?= strip
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
FILES ?= .
# What the demo does on Redis: three processes, of which one is killed in the middle.
FLEET = --processes 3 --kill 1500 --lease 2000 --seconds 7

TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' Cargo.toml | head -n 1)
ABI := $(shell sed -n 's/^\#define LIMITER_ABI //p' include/limiter.h)

# The shared library's real name, the name programs load, the name the linker looks for.
SO := liblimiter.so
SO_ABI := $(SO).$(ABI)
SO_FULL := $(SO).$(VERSION)

LIB_TO := $(DESTDIR)$(LIBDIR)
PC_TO := $(LIB_TO)/pkgconfig
CMAKE_TO := $(LIB_TO)/cmake/limiter
INCLUDE_TO := $(DESTDIR)$(INCLUDEDIR)

# Paths below the prefix are written relative to it, so that pkg-config can relocate them.
FILL = sed -e 's|@PREFIX@|$(PREFIX)|g' \
	-e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|g' \
	-e 's|@INCLUDEDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(INCLUDEDIR))|g' \
	-e 's|@FULL_LIBDIR@|$(LIBDIR)|g' -e 's|@FULL_INCLUDEDIR@|$(INCLUDEDIR)|g' \
	-e 's|@VERSION@|$(VERSION)|g' -e 's|@ABI@|$(ABI)|g'

.PHONY: help build demo test sim differential backends fuzz shuttle soak nemesis check bench abi header install uninstall clean

help: ## list the targets (default)
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' Makefile | \
		awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

build: ## build the library: release, shared and static
	$(CARGO) build --release --lib

demo: ## run the worker pool of examples/c over FILES=folder; three on Redis with URL=redis://... or REDIS=1
	@tools/setup.sh $(if $(REDIS),redis,demo)
	$(CARGO) build --release --lib
	@mkdir -p $(TARGET)/demo
	$(CC) -std=c99 -O2 -Wall -Wextra -Iinclude -o $(TARGET)/demo/worker_pool \
		examples/c/worker_pool.c examples/c/worker_pool/*.c $(RELEASE)/liblimiter.a -pthread -ldl -lm
	@LIMITER_URL="$(URL)" $(if $(REDIS),tools/redis.sh) $(TARGET)/demo/worker_pool --files "$(FILES)" \
		$(if $(URL)$(REDIS),$(FLEET))

test: ## run every test; installs the tools it lacks
	@tools/setup.sh test
	@tools/test.sh

sim: ## run the simulation of tests/sim: SEEDS=100 of each mode, or one story, SEED=7 MODE=base
	LIMITER_SEEDS=$(or $(SEEDS),100) LIMITER_SEED=$(SEED) LIMITER_MODE=$(or $(MODE),base) \
		$(CARGO) test -q --profile fast --test sim -- $(if $(SEED),--exact replay) --nocapture

check: ## the fast tests for development: format, lints, unit tests
	@tools/test.sh format lint unit

differential: ## compare memory, scripts and exact fractions in DECISIONS=1000000; one failure again: SEED=7 DECISIONS=1
	LIMITER_DECISIONS=$(or $(DECISIONS),1000000) LIMITER_SEED=$(SEED) \
		$(CARGO) test -q --profile fast --test differential -- --nocapture

backends: ## compare memory and Redis in SEEDS=1000 random stories of calls; one of them again: SEED=7
	@tools/setup.sh test
	LIMITER_SEEDS=$(or $(SEEDS),1000) LIMITER_SEED=$(SEED) \
		$(CARGO) test -q --profile fast --test backends -- --nocapture

fuzz: ## feed RUNS=100000 random inputs to each of TARGETS, "calls settings replies"
	@tools/setup.sh test
	tests/fuzz/run.sh "$(or $(RUNS),100000)" $(TARGETS)

shuttle: ## run threads on the memory backend in SCHEDULES=10000 orders for each story of tests/interleavings, and loom
	LIMITER_SCHEDULES=$(or $(SCHEDULES),10000) $(CARGO) test -q --features shuttle --test interleavings

soak: ## use the library for MINUTES=10, with leases, forks and cut connections; all it had comes back
	@tools/setup.sh test
	tests/soak/run.sh "$(or $(MINUTES),10)"

nemesis: ## let processes in C, Go and Ruby live through SECONDS=60 of faults; SEED= TOPOLOGY="alone sentinel cluster"
	@tools/setup.sh test
	tools/installed.sh tests/nemesis/run.sh $(or $(SECONDS),60) $(or $(SEED),1) $(TOPOLOGY)

bench: ## measure beside the peers, which it installs below target; QUICK=1 takes three minutes
	@tools/setup.sh bench
	@QUICK="$(QUICK)" python3 -B benches/run.py

abi: ## compare the built library with the recorded interface, tests/abi
	@tools/setup.sh test
	@tools/test.sh build abi

header: ## generate include/limiter.h from src/ffi
	LIMITER_WRITE_HEADER=1 $(CARGO) test -q --test header

install: ## install to PREFIX=/usr/local (DESTDIR= for packagers); BUILT=1: what was built before, without cargo
	@test -n "$(BUILT)" || $(MAKE) build
	install -d "$(LIB_TO)" "$(PC_TO)" "$(CMAKE_TO)" "$(INCLUDE_TO)/limiter"
	install -m 755 $(RELEASE)/$(SO) "$(LIB_TO)/$(SO_FULL)"
	$(STRIP) --strip-unneeded "$(LIB_TO)/$(SO_FULL)"
	ln -sf $(SO_FULL) "$(LIB_TO)/$(SO_ABI)"
	ln -sf $(SO_ABI) "$(LIB_TO)/$(SO)"
	install -m 644 $(RELEASE)/liblimiter.a "$(LIB_TO)/liblimiter.a"
	$(STRIP) --strip-debug "$(LIB_TO)/liblimiter.a"
	install -m 644 include/limiter.h bindings/cpp/include/limiter.hpp "$(INCLUDE_TO)"
	install -m 644 bindings/cpp/include/limiter/*.hpp "$(INCLUDE_TO)/limiter"
	$(FILL) packaging/limiter.pc.in > "$(PC_TO)/limiter.pc"
	$(FILL) packaging/limiterConfig.cmake.in > "$(CMAKE_TO)/limiterConfig.cmake"
	$(FILL) packaging/limiterConfigVersion.cmake.in > "$(CMAKE_TO)/limiterConfigVersion.cmake"

uninstall: ## remove what install put there
	rm -f "$(LIB_TO)/$(SO_FULL)" "$(LIB_TO)/$(SO_ABI)" "$(LIB_TO)/$(SO)" "$(LIB_TO)/liblimiter.a" \
		"$(INCLUDE_TO)/limiter.h" "$(INCLUDE_TO)/limiter.hpp" "$(INCLUDE_TO)"/limiter/*.hpp \
		"$(PC_TO)/limiter.pc" "$(CMAKE_TO)/limiterConfig.cmake" "$(CMAKE_TO)/limiterConfigVersion.cmake"
	test ! -d "$(CMAKE_TO)" || rmdir --ignore-fail-on-non-empty "$(CMAKE_TO)"
	test ! -d "$(INCLUDE_TO)/limiter" || rmdir --ignore-fail-on-non-empty "$(INCLUDE_TO)/limiter"

clean: ## remove what was built
	$(CARGO) clean
