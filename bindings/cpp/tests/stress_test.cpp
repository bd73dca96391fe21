// Many threads at once: blocking, asynchronous, queued, cancelled. Nothing is lost, nothing is too much.
#include <atomic>
#include <thread>

#include "check.hpp"
#include "world.hpp"

using namespace std::chrono_literals;
using limiter::Limit;
using limiter::Limiter;
using limiter::Permit;
using limiter::Queue;

namespace {

constexpr int threads = 8;
constexpr int rounds = 200;
constexpr int capacity = 3;

/// How many hold a permit now; remembers whether it was ever more than may be.
struct Watch {
    std::atomic<int> now{0};
    std::atomic<bool> exceeded{false};

    void hold(const Permit& permit) {
        if (permit) {
            if (++now > capacity) {
                exceeded = true;
            }
            std::this_thread::yield();
            --now;
        }
    }
};

template <class Body>
void on_threads(Body body) {
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) {
        all.emplace_back(body, i);
    }
    for (std::thread& thread : all) {
        thread.join();
    }
}

}  // namespace

TEST("threads that block and that do not") {
    const limiter::Client client;
    const Limiter limits(client, "stress", {Limit::semaphore(capacity)});
    Watch watch;
    std::atomic<int> admitted{0};
    on_threads([&](int thread) {
        for (int i = 0; i < rounds; ++i) {
            const Permit permit = limits.attempt("k", thread % 2 == 0 ? 10s : 0s);
            admitted += permit ? 1 : 0;
            watch.hold(permit);
        }
    });
    CHECK(!watch.exceeded);
    CHECK(admitted >= threads / 2 * rounds);
    const limiter::Stats stats = client.stats();
    CHECK_EQ(stats.in_flight, 0U);
    CHECK_EQ(stats.waiting, 0U);
    CHECK_EQ(stats.granted, static_cast<std::uint64_t>(admitted.load()));
    CHECK_EQ(stats.released, stats.granted);
}

TEST("callbacks, half of them cancelled: each is called once") {
    std::atomic<int> called{0};
    Watch watch;
    {
        const limiter::Client client;
        const Limiter limits(client, "stress", {Limit::semaphore(capacity)});
        on_threads([&](int thread) {
            for (int i = 0; i < rounds; ++i) {
                const limiter::Operation wait =
                    limits.acquire_async("k", 1min, [&](const Permit& permit) {
                        watch.hold(permit);
                        ++called;
                    });
                if ((thread + i) % 2 == 0) {
                    (void)wait.cancel();
                }
            }
        });
        while (called < threads * rounds) {
            std::this_thread::yield();
        }
        client.shutdown();
        CHECK_EQ(client.stats().in_flight, 0U);
    }
    CHECK(!watch.exceeded);
    CHECK_EQ(called.load(), threads * rounds);
}

TEST("one queue, several who submit, cancel, detach and poll") {
    const limiter::Client client;
    const Limiter limits(client, "stress", {Limit::semaphore(capacity)});
    const Queue queue(client);
    std::atomic<int> awaited{0};
    Watch watch;
    on_threads([&](int thread) {
        for (int i = 0; i < rounds; ++i) {
            const Permit now = queue.submit(limits, "k", 1min);
            if (now.decision().pending()) {
                ++awaited;
                const limiter_op op = now.decision().operation();
                if ((thread + i) % 5 == 0 && queue.detach(op)) {
                    --awaited;
                } else if ((thread + i) % 3 == 0) {
                    (void)queue.cancel(op);
                }
            }
            watch.hold(now);
            for (const Permit& permit : queue.poll(0s, 4)) {
                watch.hold(permit);
                --awaited;
            }
        }
    });
    while (awaited > 0) {
        for (const Permit& permit : queue.poll(10s)) {
            watch.hold(permit);
            --awaited;
        }
    }
    CHECK(!watch.exceeded);
    CHECK(queue.poll().empty());
    CHECK_EQ(client.stats().in_flight, 0U);
    CHECK_EQ(client.stats().waiting, 0U);
    CHECK_EQ(limits.peek("k").limit(), static_cast<std::uint64_t>(capacity));
    CHECK(limits.attempt({"k", capacity}));
}
