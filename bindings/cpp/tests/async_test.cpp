// acquire_async() and Queue.
#include <poll.h>

#include <functional>
#include <thread>

#include "check.hpp"
#include "world.hpp"

using namespace std::chrono_literals;
using limiter::Limit;
using limiter::Limiter;
using limiter::Permit;
using limiter::Queue;
using limiter::Request;
using limiter::Status;
using limiter::Wait;

namespace {

bool readable(const Queue& queue) {
    pollfd poll_for{queue.descriptor(), POLLIN, 0};
    return poll(&poll_for, 1, 0) == 1;
}

}  // namespace

TEST("a callable receives the permit, on another thread") {
    Mailbox<std::pair<Permit, std::thread::id>> box;
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    (void)one.acquire_async({}, 1s, [&box](Permit permit) {
        box.put({std::move(permit), std::this_thread::get_id()});
    });
    const auto [permit, where] = box.take();
    CHECK(permit && permit.decision().ok());
    CHECK(where != std::this_thread::get_id());
    CHECK(!one.try_acquire());
}

TEST("a callable may be move-only") {
    Mailbox<int> box;
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    (void)one.acquire_async({}, 1s, [&box, number = std::make_unique<int>(7)](Permit) {
        box.put(*number);
    });
    CHECK_EQ(box.take(), 7);
}

TEST("whatever std::invoke takes is a callable") {
    Mailbox<int> box;
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    void (Permit::*const release)() = &Permit::release;
    (void)one.acquire_async({}, 1s, release);
    const std::function<void(const Permit&)> reference = [&box](const Permit&) { box.put(1); };
    (void)one.acquire_async({}, 1min, reference);
    (void)one.acquire_async({}, 1min, std::ref(reference));
    (void)one.acquire_async({}, 1min, [&box](auto&& permit) { box.put(permit ? 2 : 3); });
    CHECK(box.take() == 1 && box.take() == 1 && box.take() == 2);
}

TEST("a callable that is none is refused at once") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    CHECK_THROWS(one.acquire_async({}, 1s, std::function<void(Permit)>()), Status::invalid);
    void (*const none)(Permit) = nullptr;
    std::error_code code;
    (void)one.acquire_async({}, 1s, none, code);
    CHECK(code == Status::invalid && world.client.stats().granted == 0);
}

TEST("a permit that the callable drops is released") {
    Mailbox<int> box;
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    Permit first = one.acquire();
    (void)one.acquire_async({}, 1min, [&box](Permit) { box.put(1); });
    (void)one.acquire_async({}, 1min, [&box](Permit) { box.put(2); });
    first.release();
    CHECK_EQ(box.take(), 1);
    CHECK_EQ(box.take(), 2);
}

TEST("refusals come as empty permits") {
    Mailbox<Permit> box;
    const World world;
    const Limiter minute = world.limiter({Limit::token_bucket(1, 1, 1min)});
    (void)minute.acquire();
    const auto put = [&box](Permit permit) { box.put(std::move(permit)); };
    (void)minute.acquire_async({}, 1s, put);
    const Permit denied = box.take();
    CHECK(!denied && denied.decision().status() == Status::denied);
    CHECK(denied.decision().retry_after() == 1min);
    (void)minute.acquire_async({"", 2}, 1s, put);
    CHECK(box.take().decision().status() == Status::never);
}

TEST("an asynchronous wait can be cancelled, once") {
    Mailbox<Permit> box;
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    const Permit first = one.acquire();
    const limiter::Operation wait =
        one.acquire_async({}, 1min, [&box](Permit permit) { box.put(std::move(permit)); });
    CHECK(wait.id() != 0);
    CHECK(wait.cancel());
    CHECK(box.take().decision().status() == Status::cancelled);
    CHECK(!wait.cancel());
    CHECK(!limiter::Operation().cancel());
}

TEST("an asynchronous wait can be detached, once, and its callable goes uncalled") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    Permit held = one.acquire();
    const auto token = std::make_shared<int>(7);
    const limiter::Operation operation =
        one.acquire_async({}, 1h, [token](const Permit&) { std::terminate(); });
    const limiter::Operation copy = operation;
    CHECK_EQ(token.use_count(), 2);
    CHECK(operation.detach());
    CHECK_EQ(token.use_count(), 1);
    CHECK(!copy.detach() && !copy.cancel());
    CHECK(!limiter::Operation().detach());
    held.release();
    CHECK(one.try_acquire().has_value());
}

TEST("operations and queues outlive their client") {
    auto client = std::make_unique<limiter::Client>();
    const Limiter one(*client, "one", {Limit::semaphore(1)});
    const limiter::Queue queue(*client);
    const Permit held = one.acquire();
    Mailbox<Status> box;
    const limiter::Operation operation =
        one.acquire_async({}, 1h, [&box](const Permit& permit) { box.put(permit.decision().status()); });
    const limiter_op waiting = queue.submit(one, {}, 1h).decision().operation();
    client.reset();
    CHECK_EQ(static_cast<int>(box.take()), static_cast<int>(Status::closed));
    CHECK(!operation.cancel() && !operation.detach());
    CHECK(!queue.cancel(waiting) && !queue.detach(waiting));
    CHECK_EQ(static_cast<int>(one.attempt().decision().status()), static_cast<int>(Status::closed));
}

TEST("a client may go while others cancel") {
    for (int round = 0; round < 50; ++round) {
        auto client = std::make_unique<limiter::Client>();
        const Limiter one(*client, "one", {Limit::semaphore(1)});
        const limiter::Queue queue(*client);
        const Permit held = one.acquire();
        std::vector<limiter_op> waiting;
        for (int i = 0; i < 20; ++i) {
            waiting.push_back(queue.submit(one, {}, 1h).decision().operation());
        }
        std::thread other([&queue, &waiting] {
            for (const limiter_op op : waiting) (void)queue.cancel(op);
        });
        client.reset();
        other.join();
    }
}

TEST("what was not started is not called") {
    const Limiter none;
    auto watched = std::make_shared<int>(0);
    std::error_code code;
    (void)none.acquire_async({}, 1s, [watched](Permit) { std::terminate(); }, code);
    CHECK(code == Status::invalid);
    CHECK_EQ(watched.use_count(), 1);
}

TEST("from a callback, blocking calls answer would_deadlock and others work") {
    Mailbox<Status> box;
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    (void)one.acquire_async({}, 1s, [&](Permit permit) {
        box.put(one.attempt("x", 1s).decision().status());
        std::error_code code;
        world.client.shutdown(1s, code);
        box.put(static_cast<Status>(code.value()));
        permit.release(code);
        box.put(static_cast<Status>(code.value()));
        box.put(one.attempt("y").decision().status());
    });
    CHECK(box.take() == Status::would_deadlock);
    CHECK(box.take() == Status::would_deadlock);
    CHECK(box.take() == Status::ok);
    CHECK(box.take() == Status::ok);
}

TEST("shutdown answers what waits") {
    Mailbox<Permit> box;
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    const Permit first = one.acquire();
    (void)one.acquire_async({}, Wait::forever(),
                            [&box](Permit permit) { box.put(std::move(permit)); });
    world.client.shutdown();
    CHECK(box.take().decision().status() == Status::closed);
}

TEST("a queue: at once, or polled") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    const Queue queue(world.client);
    CHECK(queue && queue.descriptor() >= 0);
    Permit first = queue.submit(one);
    CHECK(first && first.decision().operation() == 0);
    const Permit second = queue.submit(one, Request().tag(9), 1min);
    CHECK(!second && second.decision().pending());
    CHECK(second.decision().operation() != 0);
    CHECK(!readable(queue));
    CHECK(queue.poll().empty());
    first.release();
    CHECK(readable(queue));
    {
        const std::vector<Permit> permits = queue.poll();
        CHECK_EQ(permits.size(), 1U);
        CHECK(permits[0]);
        CHECK_EQ(permits[0].decision().tag(), 9U);
        CHECK_EQ(permits[0].decision().operation(), second.decision().operation());
        CHECK(!one.try_acquire());
        CHECK(!readable(queue));
    }
    CHECK(one.try_acquire().has_value());
}

TEST("a queue: cancel, detach") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    const Queue queue(world.client);
    Permit first = one.acquire();
    const limiter_op cancelled = queue.submit(one).decision().operation();
    const limiter_op detached = queue.submit(one).decision().operation();
    CHECK(queue.cancel(cancelled));
    CHECK(queue.detach(detached));
    const std::vector<Permit> permits = queue.poll(Wait::none(), 10);
    CHECK_EQ(permits.size(), 1U);
    CHECK(permits[0].decision().status() == Status::cancelled);
    CHECK(!queue.cancel(cancelled));
    CHECK(!queue.detach(detached));
    first.release();
    CHECK(one.try_acquire().has_value());
}

TEST("a queue: completions come in order, as many as wanted") {
    const World world;
    const Limiter paced = world.limiter({Limit::pacer(1, 1s)});
    const Queue queue(world.client);
    CHECK(queue.submit(paced, Request().tag(0)).decision().ok());
    for (std::uint64_t tag = 1; tag <= 5; ++tag) {
        CHECK(queue.submit(paced, Request().tag(tag)).decision().pending());
    }
    world.client.advance(5s);
    std::uint64_t next = 1;
    for (const Permit& permit : queue.poll(Wait::none(), 3)) {
        CHECK_EQ(permit.decision().tag(), next++);
    }
    CHECK_EQ(next, 4U);
    for (const Permit& permit : queue.poll()) {
        CHECK_EQ(permit.decision().tag(), next++);
    }
    CHECK_EQ(next, 6U);
}

TEST("a queue tells of a lost lease where asked to") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1).lease(1s).no_renew()});
    const Queue queue(world.client);
    Permit first = one.acquire();
    CHECK(queue.submit(one, Request().tag(3).tell_lost(), 1min).decision().pending());
    first.release();
    std::vector<Permit> granted = queue.poll();
    CHECK_EQ(granted.size(), 1U);
    world.client.advance(1s);
    const std::vector<Permit> lost = queue.poll();
    CHECK_EQ(lost.size(), 1U);
    CHECK(!lost[0] && lost[0].decision().status() == Status::stale);
    CHECK_EQ(lost[0].decision().permit_id(), granted[0].id());
    CHECK_EQ(lost[0].decision().tag(), 3U);
}

TEST("a queue: blocked poll is woken, and is closed after shutdown") {
    const limiter::Client client;
    const Limiter paced(client, "paced", {Limit::pacer(100, 1s)});
    const Queue queue(client);
    (void)paced.acquire();
    CHECK(queue.submit(paced).decision().pending());
    CHECK_EQ(queue.poll(1min).size(), 1U);
    CHECK(queue.poll(1ms).empty());
    client.shutdown();
    CHECK_THROWS(queue.poll(), Status::closed);
    std::error_code code;
    CHECK(queue.poll(1min, 1, code).empty());
    CHECK(code == Status::closed);
}

TEST("a queue that goes gives back what it has") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    {
        const Queue queue(world.client);
        Permit first = one.acquire();
        CHECK(queue.submit(one).decision().pending());
        CHECK(queue.submit(one).decision().pending());
        first.release();
    }
    CHECK(one.try_acquire().has_value());
    CHECK_EQ(world.client.stats().waiting, 0U);
}

TEST("an empty queue") {
    const World world;
    const Queue none;
    CHECK(!none && none.descriptor() == -1 && none.native_handle() == nullptr);
    CHECK(none.submit(world.limiter({Limit::unlimited()})).decision().status() == Status::invalid);
    CHECK_THROWS(none.poll(), Status::invalid);
    CHECK(!none.cancel(1) && !none.detach(1));
    std::error_code code;
    CHECK(!Queue(limiter::Client(std::string("gopher://"), code), code));
    CHECK(code == Status::invalid);
}
