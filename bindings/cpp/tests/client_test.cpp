// Config, Client, what is refused when a limiter is made, hooks, the virtual clock.
#include <atomic>
#include <thread>

#include "check.hpp"
#include "world.hpp"

using namespace std::chrono_literals;
using limiter::Client;
using limiter::Config;
using limiter::Limit;
using limiter::Limiter;
using limiter::OnFailure;
using limiter::Status;
using limiter::Wait;

namespace {

/// what() of the error that making this limiter throws.
std::string refusal(const Client& client, std::initializer_list<Limit> limits) {
    try {
        const Limiter made(client, "refused", limits);
    } catch (const limiter::error& failure) {
        CHECK(failure.status() == Status::config || failure.status() == Status::invalid);
        return failure.what();
    }
    return "";
}

bool holds(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST("a client is memory by default") {
    const Client client;
    CHECK(client && client.native_handle() != nullptr);
    const auto apart = client.now() - std::chrono::system_clock::now();
    CHECK(apart < 1min && apart > -1min);
}

TEST("the loaded library's version") {
    CHECK_EQ(limiter::version() >> 16, static_cast<unsigned>(LIMITER_VERSION_MAJOR));
    CHECK_EQ(limiter::version() >> 8 & 255, static_cast<unsigned>(LIMITER_VERSION_MINOR));
}

TEST("a URL that cannot be used is refused with a reason") {
    CHECK_THROWS(Client("gopher://x"), Status::config);
    std::error_code code;
    const Client none("gopher://x", code);
    CHECK(!none && code == Status::config);
    const Client fine("memory://", Config(), code);
    CHECK(fine && !code);
    CHECK_THROWS(Client(std::string("memory://\0x", 11)), Status::invalid);
    try {
        const Client secret("gopher://user:hunter2@x");
        CHECK(false);
    } catch (const limiter::error& failure) {
        CHECK(std::string(failure.what()).find("hunter2") == std::string::npos);
    }
}

TEST("a limiter's own setting") {
    Client client;
    Limiter limiter(client, "n", {Limit::semaphore(1)});
    limiter.on_failure(OnFailure::open).on_failure(OnFailure::local);
    std::error_code code;
    limiter.on_failure(static_cast<OnFailure>(9), code);
    CHECK(code == Status::config);
    CHECK_THROWS(limiter.on_failure(static_cast<OnFailure>(9)), Status::config);
    CHECK_THROWS(Limiter().on_failure(OnFailure::open), Status::invalid);
}

TEST("settings") {
    Config config;
    config.virtual_clock()
        .lease(5s)
        .max_waiting(10)
        .max_penalty(1min)
        .prefix("app")
        .command_timeout(100ms)
        .on_failure(OnFailure::error)
        .on_failure(OnFailure::open)
        .on_failure(OnFailure::closed)
        .on_failure(OnFailure::local)
        .processes(3)
        .set("lease_ms", "100");
    CHECK_THROWS(config.set("lease_ms", "99"), Status::config);
    CHECK_THROWS(config.lease(-1s), Status::config);
    CHECK_THROWS(config.max_waiting(0), Status::config);
    CHECK_THROWS(config.set("colour", "blue"), Status::config);
    CHECK_THROWS(config.set("prefix", std::string("a\0b", 3)), Status::invalid);
    std::error_code code;
    config.set("colour", "blue", code);
    CHECK(code == Status::config);
    config.set("prefix", "b", code);
    CHECK(!code);
    try {
        config.set("lease_ms", "99");
    } catch (const limiter::error& failure) {
        CHECK(holds(failure.what(), "lease_ms") && holds(failure.what(), "100"));
    }
    const Client one("memory://", config);
    const Client two("memory://", config);
    CHECK(one && two);
}

TEST("settings that were moved from are none") {
    limiter::Config config;
    config.virtual_clock();
    limiter::Config taken(std::move(config));
    CHECK(static_cast<bool>(taken));
    CHECK(!config);  // NOLINT: the point
    CHECK_THROWS(config.on_lost([](limiter_permit) {}), Status::invalid);
    CHECK_THROWS(config.on_log(limiter::Level::info, [](limiter::Level, const char*) {}), Status::invalid);
    CHECK_THROWS(config.prefix("x"), Status::invalid);
    CHECK_THROWS(limiter::Client("memory://", config), Status::invalid);
    std::error_code code;
    CHECK(!limiter::Client("memory://", config, code));
    CHECK(code == Status::invalid);
    limiter::Client("memory://", taken).advance(1s);
}

TEST("limits out of range are refused with the range") {
    const World world;
    CHECK(holds(refusal(world.client, {Limit::semaphore(0)}), "capacity"));
    CHECK(holds(refusal(world.client, {Limit::token_bucket(1, 0, 1s)}), "refill"));
    CHECK(!refusal(world.client, {Limit::token_bucket(1, 1, -1s)}).empty());
    CHECK(!refusal(world.client, {Limit::token_bucket(1, 1001, 1us)}).empty());
    CHECK(!refusal(world.client, {Limit::semaphore(1).lease(1ms)}).empty());
    CHECK(!refusal(world.client, {Limit::semaphore(1).interval()}).empty());
    CHECK(!refusal(world.client, {}).empty());
    const std::vector<Limit> many(17, Limit::unlimited());
    CHECK_THROWS(Limiter(world.client, "many", many), Status::invalid);
    const std::vector<Limit> most(16, Limit::unlimited());
    CHECK(Limiter(world.client, "most", most));
    std::error_code code;
    CHECK(!Limiter(world.client, "code", {Limit::semaphore(0)}, code));
    CHECK(code == Status::config);
    CHECK(Limiter(world.client, "code", most, code));
    CHECK(!code);
    CHECK_THROWS(Limiter(world.client, "", most), Status::config);
    CHECK_THROWS(Limiter(world.client, std::string("a\0b", 3), most), Status::invalid);
}

TEST("shutdown ends it, and may be repeated") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    limiter::Permit permit = one.acquire();
    world.client.shutdown();
    world.client.shutdown(Wait::forever());
    std::error_code code = Status::panic;
    world.client.shutdown(0ms, code);
    CHECK(!code);
    CHECK(one.attempt().decision().status() == Status::closed);
    CHECK_THROWS(one.acquire(), Status::closed);
}

TEST("a client may go first") {
    Limiter one;
    limiter::Permit permit;
    limiter::Queue queue;
    {
        const World world;
        one = world.limiter({Limit::semaphore(1)});
        queue = limiter::Queue(world.client);
        permit = one.acquire();
    }
    CHECK(one.attempt().decision().status() == Status::closed);
    CHECK(queue.submit(one).decision().status() == Status::closed);
}

TEST("clients move") {
    Client first("memory://", Config().virtual_clock());
    Client second = std::move(first);
    CHECK(!first && second);  // NOLINT: moved from on purpose
    CHECK(Limiter(second, "x", {Limit::semaphore(1)}).acquire());
    second = Client();
    CHECK(second);
    CHECK_THROWS(first.shutdown(), Status::invalid);
    CHECK_EQ(first.stats().granted, 0U);
    CHECK_EQ(first.cancel_waits(1), 0);
    CHECK_THROWS(Limiter(first, "x", {Limit::semaphore(1)}), Status::invalid);
}

TEST("cancel_waits ends blocked calls of other threads") {
    const Client client;
    const Limiter one(client, "one", {Limit::semaphore(1)});
    const limiter::Permit permit = one.acquire();
    std::atomic<int> cancelled{0};
    std::vector<std::thread> workers;
    for (int i = 0; i < 3; ++i) {
        workers.emplace_back([&one, &cancelled] {
            std::error_code code;
            (void)one.acquire(limiter::Request("").tag(5), Wait::forever(), code);
            cancelled += code == Status::cancelled ? 1 : 0;
        });
    }
    while (client.stats().waiting < 3) {
        std::this_thread::yield();
    }
    CHECK_EQ(client.cancel_waits(6), 0);
    CHECK_EQ(client.cancel_waits(5), 3);
    for (std::thread& worker : workers) {
        worker.join();
    }
    CHECK_EQ(cancelled.load(), 3);
}

TEST("the virtual clock") {
    const World world;
    const auto start = world.client.now();
    CHECK(start.time_since_epoch() == 1000000000s);
    world.client.advance(1500us);
    CHECK(world.client.now() - start == 1500us);
    world.client.set_clock(start + 1h);
    CHECK(world.client.now() - start == 1h);
    CHECK_THROWS(world.client.advance(-1us), Status::invalid);
    CHECK_THROWS(world.client.set_clock(Client::Time(-1us)), Status::invalid);
    const Client real;
    CHECK_THROWS(real.advance(1s), Status::unsupported);
    std::error_code code;
    real.set_clock(start, code);
    CHECK(code == Status::unsupported);
    real.advance(1s, code);
    CHECK(code == Status::unsupported);
}

TEST("the counters") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    const limiter::Permit permit = one.acquire("a");
    (void)one.attempt("a");
    (void)one.attempt({"a", 2});
    const limiter::Stats stats = world.client.stats();
    CHECK_EQ(stats.granted, 1U);
    CHECK_EQ(stats.denied, 1U);
    CHECK_EQ(stats.never, 1U);
    CHECK_EQ(stats.in_flight, 1U);
    CHECK_EQ(stats.keys, 1U);
}

TEST("a lost lease is told") {
    Mailbox<limiter_permit> lost;
    Config config;
    config.virtual_clock().on_lost([&lost](limiter_permit permit) { lost.put(permit); });
    const Client client("memory://", config);
    const Limiter one(client, "one", {Limit::semaphore(1).lease(1s).no_renew()});
    limiter::Permit permit = one.acquire();
    const limiter_permit id = permit.id();
    client.advance(1s);
    CHECK_EQ(lost.take(), id);
    CHECK_THROWS(permit.release(), Status::stale);
    CHECK_EQ(client.stats().lost, 1U);
}

TEST("log records reach the callable, up to its level") {
    std::atomic<int> all{0};
    std::atomic<int> severe{0};
    std::atomic<bool> wrong{false};
    {
        Config config;
        config.on_log(limiter::Level::debug, [&](limiter::Level level, const char* text) {
            ++all;
            wrong = wrong || text == nullptr || *text == 0 || level == limiter::Level::none;
        });
        const Client loud("memory://", config);
        config.on_log(limiter::Level::error, [&](limiter::Level, const char*) { ++severe; });
        const Client quiet("memory://", config);
    }
    CHECK(all > 0 && !wrong);
    CHECK_EQ(severe.load(), 0);
}

TEST("callables live as long as the clients made with them") {
    auto watched = std::make_shared<int>(0);
    const std::weak_ptr<int> watch = watched;
    {
        Client client;
        {
            Config config;
            config.on_log(limiter::Level::debug, [kept = watched](limiter::Level, const char*) {});
            config.on_lost([kept = watched](limiter_permit) {});
            client = Client("memory://", config);
        }
        watched.reset();
        CHECK(!watch.expired());
        CHECK(Limiter(client, "x", {Limit::semaphore(1)}).acquire());
    }
    CHECK(watch.expired());
}
