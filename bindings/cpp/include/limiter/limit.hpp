/// Limit: one rule of a limiter, made at compile time where you like.
/// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef LIMITER_LIMIT_HPP
#define LIMITER_LIMIT_HPP

#include <limiter.h>

#include <chrono>
#include <cstdint>
#include <limits>

namespace limiter {

namespace detail {

/// Milliseconds for C. Below the range stays below it (never 0, which would mean "default"), above
/// it above, so that the library refuses both with its message.
constexpr std::uint32_t lease_ms(std::chrono::milliseconds lease) noexcept {
    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    if (lease.count() <= 0) {
        return 1;
    }
    return lease.count() >= static_cast<std::chrono::milliseconds::rep>(most)
               ? most
               : static_cast<std::uint32_t>(lease.count());
}

}  // namespace detail

/// One rule. Make it with a factory and refine it:
///
///     constexpr auto bytes = Limit::token_bucket(64 << 20, 16 << 20, 1s);
///     constexpr auto starts = Limit::sliding_log(200, 1s).per_call();
///
/// Ranges: capacity 1 to 2^48 (a pacer's burst from 0); refill 1 to 2^48; periods 1 us to 10 years;
/// at most 1000 units per microsecond; capacity * period / refill at most 100 years. They are
/// checked when a Limiter is made (Status::config, with the range in the message). Durations finer
/// than a microsecond do not convert, so nothing is rounded behind your back.
class Limit {
public:
    using Units = std::uint64_t;
    using Period = std::chrono::microseconds;

    /// At most `capacity` units held at once; first in, first out over all processes.
    static constexpr Limit semaphore(Units capacity) noexcept {
        return Limit(LIMITER_SEMAPHORE, capacity, 0, Period(0));
    }

    /// `refill` units per `period`, and up to `capacity` saved up; starts full.
    static constexpr Limit token_bucket(Units capacity, Units refill, Period period) noexcept {
        return Limit(LIMITER_TOKEN_BUCKET, capacity, refill, period);
    }

    /// `refill` units per `period`, evenly spaced, and up to `burst` more after a quiet time.
    static constexpr Limit pacer(Units refill, Period period, Units burst = 0) noexcept {
        return Limit(LIMITER_PACER, burst, refill, period);
    }

    /// At most `capacity` units in any `window` whatever; remembers each admission.
    static constexpr Limit sliding_log(Units capacity, Period window) noexcept {
        return Limit(LIMITER_SLIDING_LOG, capacity, 0, window);
    }

    /// About `capacity` units in any `window`, from two counters.
    static constexpr Limit sliding_counter(Units capacity, Period window) noexcept {
        return Limit(LIMITER_SLIDING_COUNTER, capacity, 0, window);
    }

    /// At most `capacity` units in each `window`; windows begin at whole multiples since 1970.
    static constexpr Limit fixed_window(Units capacity, Period window) noexcept {
        return Limit(LIMITER_FIXED_WINDOW, capacity, 0, window);
    }

    /// Always admits.
    static constexpr Limit unlimited() noexcept {
        return Limit(LIMITER_UNLIMITED, 0, 0, Period(0));
    }

    /// Never admits: every weight but 0 is answered Status::never.
    static constexpr Limit never() noexcept {
        return Limit(LIMITER_NEVER_ADMIT, 0, 0, Period(0));
    }

    /// From C.
    explicit constexpr Limit(const limiter_limit& raw) noexcept : raw_(raw) {}

    /// The same, counting calls instead of their weight.
    constexpr Limit per_call() const noexcept { return with(LIMITER_PER_CALL); }

    /// Token bucket: the refill comes all at once at each period's end.
    constexpr Limit interval() const noexcept { return with(LIMITER_INTERVAL); }

    /// Token bucket: a new key starts with nothing saved up.
    constexpr Limit start_empty() const noexcept { return with(LIMITER_START_EMPTY); }

    /// Fixed window: the first window starts at the first use, not by the clock.
    constexpr Limit align_first_use() const noexcept { return with(LIMITER_ALIGN_FIRST_USE); }

    /// Semaphore: permits end after their lease unless Permit::renew() is called.
    constexpr Limit no_renew() const noexcept { return with(LIMITER_NO_RENEW); }

    /// Semaphore: how long a permit lives unless it is renewed, 100 ms to a day.
    constexpr Limit lease(std::chrono::milliseconds lease) const noexcept {
        Limit limit = *this;
        limit.raw_.lease_ms = detail::lease_ms(lease);
        return limit;
    }

    /// Pacer: how fast burst is earned back, in thousandths of the rate, 0 to 1000. Default 500.
    constexpr Limit burst_earn_permille(std::uint32_t permille) const noexcept {
        Limit limit = *this;
        limit.raw_.burst_earn_permille = permille;
        return limit;
    }

    /// Number of this configuration: where the same name is open with other parameters, a lower
    /// number cannot bring older ones back. Default 0.
    constexpr Limit version(std::uint32_t version) const noexcept {
        Limit limit = *this;
        limit.raw_.version = version;
        return limit;
    }

    /// As C has it.
    constexpr const limiter_limit& raw() const noexcept { return raw_; }

private:
    constexpr Limit(std::uint32_t kind, Units capacity, Units refill, Period period) noexcept {
        raw_.kind = kind;
        raw_.capacity = capacity;
        raw_.refill = refill;
        // A negative period becomes one far above the range, and is refused.
        raw_.period_us = static_cast<std::uint64_t>(period.count());
    }

    constexpr Limit with(std::uint32_t flag) const noexcept {
        Limit limit = *this;
        limit.raw_.flags |= flag;
        return limit;
    }

    limiter_limit raw_ = LIMITER_INIT(limiter_limit);
};

}  // namespace limiter

#endif  // LIMITER_LIMIT_HPP
