// What needs no library call: limits, waits, requests, decisions, codes.
#include <limiter.hpp>

#include <array>
#include <type_traits>

#include "check.hpp"

using namespace std::chrono_literals;
using limiter::Condition;
using limiter::Decision;
using limiter::Limit;
using limiter::Request;
using limiter::Status;
using limiter::Wait;

static_assert(!std::is_copy_constructible_v<limiter::Permit>);
static_assert(std::is_nothrow_move_constructible_v<limiter::Permit>);
static_assert(std::is_nothrow_move_assignable_v<limiter::Permit>);
static_assert(!std::is_copy_constructible_v<limiter::Client>);
static_assert(std::is_nothrow_move_constructible_v<limiter::Client>);
static_assert(!std::is_copy_constructible_v<limiter::Limiter>);
static_assert(std::is_nothrow_move_constructible_v<limiter::Limiter>);
static_assert(std::is_nothrow_move_constructible_v<limiter::Queue>);
static_assert(std::is_trivially_copyable_v<Limit>);
static_assert(std::is_trivially_copyable_v<Decision>);
static_assert(sizeof(Decision) == sizeof(limiter_decision));
static_assert(noexcept(std::declval<limiter::Limiter&>().attempt()));

// Nothing is rounded behind one's back: what is finer than a microsecond does not convert.
static_assert(!std::is_convertible_v<std::chrono::nanoseconds, Limit::Period>);
static_assert(!std::is_convertible_v<std::chrono::duration<double>, Limit::Period>);
static_assert(!std::is_convertible_v<int, Wait>);

TEST("limits are made at compile time") {
    constexpr Limit bucket = Limit::token_bucket(20, 200, 1s).per_call().interval().start_empty();
    static_assert(bucket.raw().kind == LIMITER_TOKEN_BUCKET);
    static_assert(bucket.raw().capacity == 20 && bucket.raw().refill == 200);
    static_assert(bucket.raw().period_us == LIMITER_SECOND);
    static_assert(bucket.raw().flags ==
                  (LIMITER_PER_CALL | LIMITER_INTERVAL | LIMITER_START_EMPTY));
    constexpr Limit semaphore = Limit::semaphore(4).lease(5s).no_renew().version(7);
    static_assert(semaphore.raw().kind == LIMITER_SEMAPHORE && semaphore.raw().lease_ms == 5000);
    static_assert(semaphore.raw().flags == LIMITER_NO_RENEW && semaphore.raw().version == 7);
    constexpr Limit pacer = Limit::pacer(10, 1min, 3).burst_earn_permille(250);
    static_assert(pacer.raw().kind == LIMITER_PACER && pacer.raw().capacity == 3);
    static_assert(pacer.raw().period_us == LIMITER_MINUTE && pacer.raw().refill == 10);
    static_assert(pacer.raw().burst_earn_permille == 250);
    static_assert(Limit::sliding_log(1, 1h).raw().kind == LIMITER_SLIDING_LOG);
    static_assert(Limit::sliding_log(1, 1h).raw().period_us == LIMITER_HOUR);
    static_assert(Limit::sliding_counter(1, 1ms).raw().kind == LIMITER_SLIDING_COUNTER);
    static_assert(Limit::fixed_window(9, 1us).align_first_use().raw().flags ==
                  LIMITER_ALIGN_FIRST_USE);
    static_assert(Limit::unlimited().raw().kind == LIMITER_UNLIMITED);
    static_assert(Limit::never().raw().kind == LIMITER_NEVER_ADMIT);
    CHECK_EQ(Limit::semaphore(1).raw().struct_size, sizeof(limiter_limit));
    CHECK_EQ(Limit::semaphore(1).raw().burst_earn_permille, 500U);
    const limiter_limit raw = limiter_semaphore(3);
    CHECK_EQ(Limit(raw).raw().capacity, 3U);
}

TEST("leases out of range stay out of range") {
    CHECK_EQ(Limit::semaphore(1).lease(0ms).raw().lease_ms, 1U);
    CHECK_EQ(Limit::semaphore(1).lease(-5s).raw().lease_ms, 1U);
    CHECK_EQ(Limit::semaphore(1).lease(std::chrono::hours(9999999)).raw().lease_ms, UINT32_MAX);
}

TEST("waits round up and stay in range") {
    static_assert(Wait::forever().milliseconds() == -1);
    static_assert(Wait::none().milliseconds() == 0);
    static_assert(Wait(1s).milliseconds() == 1000);
    static_assert(Wait(1ns).milliseconds() == 1);
    static_assert(Wait(1000001us).milliseconds() == 1001);
    static_assert(Wait(0.5s).milliseconds() == 500);
    static_assert(Wait(-1ms).milliseconds() == 0);
    static_assert(Wait(std::chrono::nanoseconds::min()).milliseconds() == 0);
    static_assert(Wait(std::chrono::hours::max()).milliseconds() == INT32_MAX);
    static_assert(Wait(std::chrono::milliseconds(INT32_MAX)).milliseconds() == INT32_MAX);
    static_assert(Wait(std::chrono::milliseconds(INT32_MAX - 1)).milliseconds() == INT32_MAX - 1);
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    CHECK_EQ(Wait(std::chrono::duration<double>(nothing)).milliseconds(), 0);
    CHECK_EQ(Wait(std::chrono::duration<double>(1e300)).milliseconds(), INT32_MAX);
}

TEST("deadlines of any clock") {
    using std::chrono::steady_clock;
    using std::chrono::system_clock;
    const std::int32_t soon = Wait(steady_clock::now() + 10s).milliseconds();
    CHECK(soon > 9000 && soon <= 10000);
    const std::int32_t wall = Wait(system_clock::now() + 10s).milliseconds();
    CHECK(wall > 9000 && wall <= 10000);
    CHECK_EQ(Wait(steady_clock::now() - 1s).milliseconds(), 0);
    CHECK_EQ(Wait(steady_clock::time_point::min()).milliseconds(), 0);
    CHECK_EQ(Wait(steady_clock::time_point::max()).milliseconds(), INT32_MAX);
}

TEST("deadlines however far") {
    using std::chrono::system_clock;
    using std::chrono::time_point;
    using Hours = std::chrono::duration<std::int64_t, std::ratio<3600>>;
    const std::int32_t most = std::numeric_limits<std::int32_t>::max();
    const Hours year2500(Hours::rep{530} * 365 * 24);
    CHECK_EQ(Wait((time_point<system_clock, std::chrono::seconds>::max)()).milliseconds(), most);
    CHECK_EQ(Wait((time_point<system_clock, std::chrono::seconds>::min)()).milliseconds(), 0);
    CHECK_EQ(Wait(time_point<system_clock, Hours>(year2500)).milliseconds(), most);
    CHECK_EQ(Wait(time_point<system_clock, Hours>(-year2500)).milliseconds(), 0);
    CHECK_EQ(Wait((system_clock::time_point::max)()).milliseconds(), most);
    CHECK_EQ(Wait((system_clock::time_point::min)()).milliseconds(), 0);
    using Slow = std::chrono::steady_clock;
    CHECK_EQ(Wait((time_point<Slow, std::chrono::duration<double>>::max)()).milliseconds(), most);
    CHECK_EQ(Wait((Slow::time_point::max)()).milliseconds(), most);
    const Wait soon = Slow::now() + std::chrono::milliseconds(1500);
    CHECK(soon.milliseconds() > 0 && soon.milliseconds() <= 1500);
}

TEST("requests") {
    const limiter_request plain = Request().raw(Wait::none());
    CHECK_EQ(plain.struct_size, sizeof(limiter_request));
    CHECK_EQ(plain.key_len, 0U);
    CHECK_EQ(plain.weight, 1U);
    CHECK(plain.weights == nullptr && plain.weights_len == 0 && plain.flags == 0);

    const std::string key("a\0b", 3);
    const Request request = Request(key, 9).lease(2s).no_renew().tell_lost().tag(77);
    const limiter_request raw = request.raw(5s);
    CHECK_EQ(std::string(raw.key, raw.key_len), key);
    CHECK_EQ(raw.weight, 9U);
    CHECK_EQ(raw.wait_ms, 5000);
    CHECK_EQ(raw.lease_ms, 2000U);
    CHECK_EQ(raw.flags, static_cast<unsigned>(LIMITER_NO_RENEW | LIMITER_TELL_LOST));
    CHECK_EQ(raw.user_data, 77U);

    const Request copy = Request("k").weights({1, 0, 3});
    const limiter_request many = copy.raw(Wait::forever());
    CHECK_EQ(many.weights_len, 3U);
    CHECK_EQ(many.weights[2], 3U);
    CHECK_EQ(many.wait_ms, -1);
    const std::vector<std::uint64_t> lots(100, 1);
    CHECK_EQ(Request().weights(lots).raw(Wait::none()).weights_len, 17U);
    CHECK(Request("k").weights(lots).weights({}).raw(Wait::none()).weights == nullptr);
    CHECK_EQ(Request(std::string_view("xy")).key("z").weight(4).raw(Wait::none()).weight, 4U);
}

TEST("decisions") {
    const Decision none;
    CHECK(none.ok() && !none.index() && !none.code() && none.permit_id() == 0);
    limiter_decision raw = LIMITER_INIT(limiter_decision);
    raw.status = LIMITER_NEVER;
    raw.retry_after_us = UINT64_MAX;
    raw.index = 3;
    raw.flags = LIMITER_DEGRADED;
    const Decision never(raw);
    CHECK(never.retry_after() == std::chrono::microseconds::max());
    CHECK_EQ(*never.index(), 3U);
    CHECK(never.degraded() && !never.maybe_charged() && !never.ok() && !never.pending());
    CHECK(never.code() == Status::never);
}

TEST("a degraded answer may have been charged") {
    limiter_decision raw = LIMITER_INIT(limiter_decision);
    raw.flags = LIMITER_DEGRADED;
    CHECK(Decision(raw).degraded() && !Decision(raw).maybe_charged());
    raw.flags = LIMITER_DEGRADED | LIMITER_MAYBE_CHARGED;
    CHECK(Decision(raw).degraded() && Decision(raw).maybe_charged());
}

TEST("a status is an error code") {
    std::error_code code = Status::denied;
    CHECK(static_cast<bool>(code));
    CHECK_EQ(std::string(code.category().name()), "limiter");
    CHECK_EQ(code.message(), std::string(limiter_status_message(LIMITER_DENIED)));
    CHECK_EQ(code.value(), LIMITER_DENIED);
    CHECK(code == Status::denied && code != Status::never);
    CHECK(code == std::errc::resource_unavailable_try_again);
    code = Status::ok;
    CHECK(!code);
    CHECK(make_error_code(Status::timeout) == std::errc::timed_out);
    CHECK(make_error_code(Status::cancelled) == std::errc::operation_canceled);
    CHECK(make_error_code(Status::invalid) == std::errc::invalid_argument);
    CHECK(make_error_code(Status::would_deadlock) == std::errc::resource_deadlock_would_occur);
    CHECK(make_error_code(Status::unsupported) == std::errc::operation_not_supported);
    CHECK(make_error_code(Status::never) != std::errc::resource_unavailable_try_again);
    CHECK_EQ(std::string(limiter::name(Status::stale)), "LIMITER_STALE");
}

TEST("conditions sort the statuses") {
    const auto is = [](Status status, Condition condition) {
        return make_error_code(status) == condition;
    };
    CHECK(is(Status::denied, Condition::refused) && is(Status::never, Condition::refused));
    CHECK(is(Status::overloaded, Condition::overloaded));
    CHECK(is(Status::resource, Condition::overloaded));
    CHECK(is(Status::backend, Condition::unavailable));
    CHECK(is(Status::unknown_outcome, Condition::unavailable));
    CHECK(is(Status::timeout, Condition::unavailable));
    CHECK(is(Status::closed, Condition::ended) && is(Status::cancelled, Condition::ended));
    CHECK(is(Status::stale, Condition::gone) && is(Status::forked, Condition::gone));
    CHECK(!is(Status::ok, Condition::refused) && !is(Status::backend, Condition::refused));
    CHECK(std::error_code(LIMITER_DENIED, std::generic_category()) != Condition::refused);
    CHECK(!make_error_condition(Condition::gone).message().empty());
    CHECK_EQ(std::string(limiter::condition_category().name()), "limiter condition");
}

TEST("each status has its own name and message") {
    std::vector<std::string> seen;
    for (const Status status :
         {Status::ok, Status::pending, Status::denied, Status::never, Status::invalid,
          Status::config, Status::closed, Status::timeout, Status::cancelled, Status::backend,
          Status::unknown_outcome, Status::stale, Status::forked, Status::would_deadlock,
          Status::overloaded, Status::resource, Status::unsupported, Status::panic}) {
        CHECK(std::string(limiter::name(status)) != "LIMITER_?");
        for (const std::string& other : seen) {
            CHECK(other != limiter::message(status));
        }
        seen.push_back(limiter::message(status));
    }
}

TEST("errors carry the decision") {
    limiter_decision raw = LIMITER_INIT(limiter_decision);
    raw.status = LIMITER_DENIED;
    raw.retry_after_us = 1500;
    const limiter::error failure(Decision(raw), "limiter: acquire");
    CHECK(failure.status() == Status::denied);
    CHECK(failure.decision().retry_after() == 1500us);
    CHECK(failure.code() == Condition::refused);
    CHECK(std::string(failure.what()).find("limiter: acquire") == 0);
    const std::system_error& base = failure;
    CHECK(base.code() == Status::denied);
}
