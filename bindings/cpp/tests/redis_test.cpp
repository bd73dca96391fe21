// What only Redis can show: several processes, forked from one, on one set of limits. Run by tools/redis.sh,
// whose server LIMITER_TEST_URL names.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "check.hpp"
#include "world.hpp"

using namespace std::chrono_literals;
using limiter::Limit;
using limiter::Limiter;
using limiter::Permit;
using limiter::Status;

namespace {

limiter::Client shared() {
    const char* url = std::getenv("LIMITER_TEST_URL");
    if (url == nullptr) {
        std::fprintf(stderr, "LIMITER_TEST_URL is not set: run by tools/redis.sh\n");
        std::exit(2);
    }
    return limiter::Client(url);
}

/// A child that runs `body` and, as an ordinary program does, shuts its client down: what it held would
/// else come back after its lease only.
template <class Body>
pid_t start(const limiter::Client& client, Body body) {
    const pid_t child = fork();
    if (child == 0) {
        const int answer = body();
        std::error_code code;
        client.shutdown(5s, code);
        _exit(answer != 0 || !code ? answer : 9);
    }
    return child;
}

int ended(pid_t child) {
    int status = -1;
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

TEST("children of one client share its limits, and its permits stay the parent's") {
    const limiter::Client client = shared();
    const Limiter one(client, "one", {Limit::semaphore(2)});
    Permit first = one.acquire("k");
    for (int depth = 1; depth <= 2; ++depth) {
        const auto use = [&one, &first] {
            std::error_code code;
            first.renew(code);
            if (code != Status::forked) return 1;
            Permit second = one.acquire("k", 5s, code);
            if (code || !second) return 2;
            if (one.try_acquire("k", code) || code) return 3;  // the parent's counts
            second.release(code);
            return code ? 4 : 0;
        };
        // Also in a child's child.
        const auto nested = [&client, &use, depth] {
            return depth == 1 ? use() : ended(start(client, use));
        };
        CHECK_EQ(ended(start(client, nested)), 0);
    }
    CHECK_EQ(one.peek("k").remaining(), std::uint64_t{1});
    first.release();
}

TEST("a permit of one process goes to a wait of another") {
    const limiter::Client client = shared();
    const Limiter one(client, "handed", {Limit::semaphore(1)});
    Permit held = one.acquire();
    const auto wait = [&one] {
        std::error_code code;
        const Permit permit = one.acquire({}, 20s, code);
        return permit ? 0 : 1;
    };
    const pid_t children[] = {start(client, wait), start(client, wait), start(client, wait)};
    std::this_thread::sleep_for(50ms);  // so that some of them wait; either way all must get it
    held.release();
    for (const pid_t child : children) {
        CHECK_EQ(ended(child), 0);
    }
    CHECK(one.acquire({}, 5s).operator bool());
}

TEST("a child that ends while it holds and waits disturbs nobody") {
    const limiter::Client client = shared();
    const Limiter one(client, "left", {Limit::semaphore(2)});
    Permit held = one.acquire();
    for (int i = 0; i < 20; ++i) {
        CHECK_EQ(ended(start(client, [&one, i] {
                     std::error_code code;
                     Permit own = one.acquire("own" + std::to_string(i), 5s, code);
                     (void)one.acquire_async({}, 1h, [](const Permit&) {}, code);
                     (void)own.detach();
                     return code ? 1 : 0;
                 })),
                 0);
    }
    held.renew();
    held.release();
    CHECK(client.stats().in_flight == 0);
}
