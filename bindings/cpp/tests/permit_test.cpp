// Limiter's blocking verbs, Permit and Booking.
#include <thread>

#include "check.hpp"
#include "world.hpp"

using namespace std::chrono_literals;
using limiter::Limit;
using limiter::Limiter;
using limiter::Permit;
using limiter::Request;
using limiter::Status;
using limiter::Wait;

namespace {

std::uint64_t held(const World& world) { return world.client.stats().in_flight; }

}  // namespace

TEST("a permit is released at the end of its scope") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    {
        const Permit permit = one.acquire();
        CHECK(permit && permit.id() != 0 && permit.decision().ok());
        CHECK_EQ(permit.decision().limit(), 1U);
        CHECK(permit.decision().fence() > 0);
        CHECK(!one.try_acquire());
        CHECK_EQ(held(world), 1U);
    }
    CHECK_EQ(held(world), 0U);
    CHECK(one.try_acquire().has_value());
}

TEST("a permit is released when an exception leaves its scope") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    try {
        const Permit permit = one.acquire();
        throw 7;
    } catch (int) {
    }
    CHECK_EQ(held(world), 0U);
}

TEST("moving a permit moves what it holds") {
    const World world;
    const Limiter two = world.limiter({Limit::semaphore(2)});
    Permit first = two.acquire();
    const limiter_permit id = first.id();
    Permit second = std::move(first);
    CHECK(!first);  // NOLINT: moved from on purpose
    CHECK_EQ(second.id(), id);
    CHECK_EQ(held(world), 1U);
    Permit third = two.acquire();
    third = std::move(second);  // gives back what third held
    CHECK_EQ(held(world), 1U);
    CHECK_EQ(third.id(), id);
    Permit& same = third;
    third = std::move(same);
    CHECK(third && held(world) == 1);
    third = Permit();
    CHECK_EQ(held(world), 0U);
}

TEST("a limiter may move under its permits") {
    const World world;
    Limiter before = world.limiter({Limit::semaphore(1)});
    Permit permit = before.acquire();
    const Limiter after = std::move(before);
    CHECK(!before && after);  // NOLINT: moved from on purpose
    permit.release();
    CHECK(after.try_acquire().has_value());
}

TEST("release tells, once, and an empty permit has nothing to tell") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1).lease(1s).no_renew()});
    Permit permit = one.acquire();
    permit.release();
    permit.release();
    Permit().release();
    Permit lost = one.acquire();
    world.client.advance(1s);
    CHECK_THROWS(lost.renew(), Status::stale);
    CHECK_THROWS(lost.release(), Status::stale);
    CHECK(!lost);
    std::error_code code = Status::panic;
    lost.release(code);
    CHECK(!code);
}

TEST("only what has a lease can have lost it") {
    const World world;
    const Limiter window = world.limiter({Limit::fixed_window(1U << 20, 1h)});
    Permit early = window.acquire();
    const limiter_permit number = early.id();
    for (int i = 0; i < 10000; ++i) {
        (void)window.acquire();
    }
    CHECK(limiter_release(window.native_handle(), number) == LIMITER_STALE);  // it is forgotten
    early.release();
    CHECK_THROWS(window.adopt(number).release(), Status::stale);  // who has only the number is told
    const Limiter one = world.limiter({Limit::semaphore(1), Limit::fixed_window(9, 1h)});
    const limiter_permit held_number = one.acquire().detach();
    one.adopt(held_number).release();
    CHECK_THROWS(one.adopt(held_number).release(), Status::stale);
    Permit moved = one.acquire();
    const limiter_permit gone = moved.id();
    Permit to;
    to = std::move(moved);
    Permit last = std::move(to);
    one.adopt(gone).release();
    CHECK_THROWS(last.release(), Status::stale);
}

TEST("renew keeps a permit") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1).lease(1s).no_renew()});
    Permit permit = one.acquire();
    world.client.advance(900ms);
    permit.renew();
    world.client.advance(900ms);
    permit.renew(5s);
    world.client.advance(4999ms);
    std::error_code code = Status::panic;
    permit.renew(code);
    CHECK(!code);
    permit.renew(0ms, code);
    CHECK(code == Status::invalid);
    Permit().renew(code);
    CHECK(code == Status::invalid);
}

TEST("settle corrects the estimate once") {
    const World world;
    const Limiter bytes = world.limiter({Limit::token_bucket(100, 100, 1min)});
    Permit permit = bytes.acquire({"", 80});
    permit.settle(30);
    CHECK_THROWS(permit.settle(30), Status::stale);
    CHECK_EQ(bytes.peek(Request().weight(0)).remaining(), 70U);
    std::error_code code;
    permit.settle(1, code);
    CHECK(code == limiter::Condition::gone);
}

TEST("detach and adopt pass a permit on as a number") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    Permit permit = one.acquire();
    const limiter_permit id = permit.detach();
    CHECK(!permit && permit.detach() == 0);
    permit = Permit();
    CHECK_EQ(held(world), 1U);
    {
        const Permit again = one.adopt(id);
        CHECK_EQ(again.id(), id);
    }
    CHECK_EQ(held(world), 0U);
}

TEST("try_acquire is empty where refused and throws where wrong") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    const auto first = one.try_acquire("k");
    CHECK(first.has_value());
    CHECK(!one.try_acquire("k").has_value());
    CHECK(!one.try_acquire({"k", 2}).has_value());
    std::error_code code = Status::panic;
    CHECK(!one.try_acquire("k", code).has_value());
    CHECK(!code);
    CHECK(one.try_acquire("other", 5s, code).has_value());
    const std::string large(65537, 'x');
    CHECK_THROWS(one.try_acquire(large), Status::invalid);
    CHECK(!one.try_acquire(large, code).has_value());
    CHECK(code == Status::invalid);
}

TEST("acquire throws what refused it, with the numbers") {
    const World world;
    const Limiter minute = world.limiter({Limit::token_bucket(1, 1, 1min)});
    (void)minute.acquire();
    try {
        (void)minute.acquire({}, 5s);
        CHECK(false);
    } catch (const limiter::error& failure) {
        CHECK(failure.status() == Status::denied);
        CHECK(failure.decision().retry_after() == 1min);
        CHECK_EQ(*failure.decision().index(), 0U);
    }
    CHECK_THROWS(minute.acquire({"", 2}), Status::never);
    std::error_code code;
    CHECK(!minute.acquire({}, 5s, code));
    CHECK(code == Status::denied);
    CHECK(!minute.acquire({"", 2}, code));
    CHECK(code == Status::never);
    world.client.advance(1min);
    CHECK(minute.acquire({}, code));
    CHECK(!code);
}

TEST("attempt answers everything as a value") {
    const World world;
    const Limiter pair = world.limiter({Limit::semaphore(9), Limit::token_bucket(1, 2, 1s)});
    const Permit first = pair.attempt();
    CHECK(first);
    const Permit second = pair.attempt();
    CHECK(!second);
    CHECK(second.decision().status() == Status::denied);
    CHECK(second.decision().retry_after() == 500ms);
    CHECK_EQ(*second.decision().index(), 1U);
    const Permit look = pair.attempt(Request().weight(0));
    CHECK(look && look.id() == 0 && look.decision().ok());
}

TEST("a permit is true from its admission until it is given away or back") {
    const limiter::Client nobody("redis://127.0.0.1:1",
                                 limiter::Config().on_failure(limiter::OnFailure::open));
    const Limiter open(nobody, "open", {Limit::semaphore(1)});
    Permit passed = open.attempt("k");
    CHECK(passed && passed.id() == 0 && passed.decision().degraded());
    Permit moved = std::move(passed);
    CHECK(!passed && moved);  // NOLINT: moved from on purpose
    passed = std::move(moved);
    CHECK(passed && !moved);  // NOLINT: moved from on purpose
    passed.release();
    CHECK(!passed);
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    Permit held = one.attempt();
    CHECK(held && !one.attempt());
    const Permit adopted = one.adopt(held.detach());
    CHECK(!held && adopted && !one.adopt(0));
    CHECK(!Permit());
}

TEST("weights for each limit") {
    const World world;
    const Limiter pair =
        world.limiter({Limit::token_bucket(10, 1, 1h), Limit::token_bucket(1000, 1, 1h)});
    CHECK(pair.attempt(Request().weights({10, 900})));
    CHECK_EQ(*pair.attempt(Request().weights({1, 0})).decision().index(), 0U);
    CHECK(pair.attempt(Request().weights({0, 100})));
    CHECK(pair.attempt(Request().weights({1})).decision().status() == Status::invalid);
    const std::vector<std::uint64_t> lots(40, 1);
    CHECK(pair.attempt(Request().weights(lots)).decision().status() == Status::invalid);
}

TEST("pace books, a booking outlives its object, and can be cancelled") {
    const World world;
    const Limiter paced = world.limiter({Limit::pacer(10, 1s)});
    CHECK(paced.pace().delay() == 0us);
    CHECK(paced.pace().delay() == 100ms);
    limiter::Booking last = paced.pace();
    CHECK(last && last.delay() == 200ms);
    last.cancel();
    CHECK_THROWS(last.cancel(), Status::stale);
    CHECK(paced.pace().delay() == 200ms);
    CHECK_THROWS(paced.pace({}, 100ms), Status::denied);
    std::error_code code;
    const limiter::Booking none = paced.pace({}, 100ms, code);
    CHECK(!none && code == Status::denied && none.delay() == 300ms);
    CHECK(paced.pace({}, code).delay() == 300ms);
    CHECK(!code);
    limiter::Booking empty;
    CHECK(!empty);
    empty.cancel();
}

TEST("pace refuses a semaphore") {
    const World world;
    CHECK_THROWS(world.limiter({Limit::semaphore(1)}).pace(), Status::invalid);
}

TEST("what is invalid is said") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1), Limit::fixed_window(9, 1s)});
    const auto says = [](auto call, const char* what) {
        try {
            call();
        } catch (const limiter::error& failure) {
            return std::string(failure.what()).find(what) != std::string::npos;
        }
        return false;
    };
    const std::string key(65537, 'x');
    CHECK(says([&] { (void)one.acquire(key, 1s); }, "65537 bytes: at most 65536"));
    CHECK(says([&] { (void)one.try_acquire(key); }, "65537 bytes: at most 65536"));
    CHECK(says([&] { (void)one.acquire(limiter::Request("k").weights({1})); }, "1 weights for 2 limits"));
    CHECK(says([&] { (void)one.acquire(limiter::Request("k").lease(1ms)); }, "a lease of 1 ms"));
    CHECK(says([&] { (void)one.pace("k"); }, "semaphore"));
    CHECK(says([&] { (void)Limiter().acquire(); }, "there is no limiter"));
    const std::string nul("a\0b", 3);
    CHECK(says([&] { Limiter(world.client, nul, {Limit::semaphore(1)}); }, "a name holds a NUL"));
    CHECK(says([&] { limiter::Config().prefix(nul); }, "a setting holds a NUL"));
    CHECK(says([&] { limiter::Client client(nul); }, "a URL holds a NUL"));
    const Permit held = one.acquire("k");
    CHECK(says([&] { (void)one.acquire("k", Wait::none()); }, "by limit 0, retry after 30000000 us"));
}

TEST("a booking can be settled and slept") {
    const World world;
    const Limiter bytes = world.limiter({Limit::token_bucket(100, 100, 1s)});
    limiter::Booking booking = bytes.pace({"", 100});
    booking.sleep();
    booking.settle(40);
    CHECK_EQ(bytes.peek(Request().weight(0)).remaining(), 60U);
    std::error_code code;
    booking.settle(40, code);
    CHECK(code == Status::stale);
}

TEST("peek, reset, penalize") {
    const World world;
    const Limiter hour = world.limiter({Limit::fixed_window(1, 1h)});
    CHECK(hour.peek("k").ok());
    CHECK(hour.attempt("k").decision().ok());
    CHECK(hour.peek("k").status() == Status::denied);
    hour.reset("k");
    CHECK(hour.peek("k").ok());
    hour.penalize("k", 3s);
    CHECK(hour.peek("k").retry_after() == 3s);
    hour.penalize("k", -5s);
    std::error_code code = Status::panic;
    hour.penalize("k", 1s, code);
    CHECK(!code);
    CHECK(hour.peek("k").retry_after() == 3s);
    CHECK(hour.peek("other").ok());
    hour.reset("k", code);
    CHECK(!code);
    hour.reset();
}

TEST("a penalty of any duration") {
    const World world;
    const Limiter free = world.limiter({Limit::unlimited()});
    const auto told = [&free](const char* key) { return free.peek(key).retry_after(); };
    std::error_code code = Status::panic;
    free.penalize("s", std::chrono::seconds::max());  // cut to max_penalty
    free.penalize("h", std::chrono::hours(1000000000), code);
    CHECK(!code && told("s") == 1h && told("h") == 1h);
    free.penalize("ns", 1ns);
    free.penalize("double", std::chrono::duration<double>(0.0000015));
    CHECK(told("ns") == 1us && told("double") == 2us);
    free.penalize("none", std::chrono::hours::min());
    CHECK(free.peek("none").ok());
}

TEST("many at once") {
    const World world;
    const Limiter two = world.limiter({Limit::semaphore(2)});
    {
        const std::vector<Permit> permits = two.try_many({"a", "a", "a", {"b", 3}, {"b", 2}});
        CHECK_EQ(permits.size(), 5U);
        CHECK(permits[0] && permits[1] && !permits[2] && !permits[3] && permits[4]);
        CHECK(permits[2].decision().status() == Status::denied);
        CHECK(permits[3].decision().status() == Status::never);
        CHECK_EQ(held(world), 3U);
    }
    CHECK_EQ(held(world), 0U);
    std::error_code code;
    CHECK(two.try_many(std::vector<Request>(70000), code).empty());
    CHECK(code == Status::invalid);
    CHECK(two.try_many({}, code).empty());
}

TEST("keys of every string type, with any bytes") {
    const World world;
    const Limiter one = world.limiter({Limit::fixed_window(1, 1h)});
    const std::string nul("a\0b", 3);
    CHECK(one.try_acquire(nul).has_value() || one.attempt(nul).decision().ok());
    CHECK(one.attempt("a").decision().ok());
    CHECK(!one.attempt(std::string_view("a")).decision().ok());
    CHECK(!one.attempt(std::string("a")).decision().ok());
    CHECK(!one.attempt(nul).decision().ok());
}

TEST("acquire waits for a release of another thread") {
    const limiter::Client client;
    const Limiter one(client, "one", {Limit::semaphore(1)});
    Permit first = one.acquire();
    std::thread other([&one] {
        const Permit second = one.acquire({}, 1min);
        CHECK(second);
    });
    while (client.stats().waiting == 0) {
        std::this_thread::yield();
    }
    first.release();
    other.join();
    CHECK_EQ(client.stats().granted, 2U);
}

TEST("acquire ends at its deadline") {
    const limiter::Client client;
    const Limiter one(client, "one", {Limit::semaphore(1)});
    const Permit first = one.acquire();
    const auto start = std::chrono::steady_clock::now();
    CHECK_THROWS(one.acquire({}, start + 30ms), Status::denied);
    CHECK(std::chrono::steady_clock::now() - start >= 30ms);
}

TEST("empty objects answer invalid") {
    const Limiter none;
    CHECK(!none && none.native_handle() == nullptr);
    CHECK(none.attempt().decision().status() == Status::invalid);
    CHECK(none.peek().status() == Status::invalid);
    CHECK_THROWS(none.acquire(), Status::invalid);
    CHECK_THROWS(none.try_acquire(), Status::invalid);
    CHECK_THROWS(none.pace(), Status::invalid);
    CHECK_THROWS(none.reset(), Status::invalid);
    CHECK_THROWS(none.penalize("", 1s), Status::invalid);
    CHECK_THROWS(none.try_many({"a"}), Status::invalid);
    CHECK_THROWS(none.acquire_async({}, 1s, [](Permit) {}), Status::invalid);
}
