/// Wait and Request: what is asked of a limiter, and how long it may take.
/// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef LIMITER_REQUEST_HPP
#define LIMITER_REQUEST_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include "limit.hpp"

namespace limiter {

namespace detail {

/// A length of time in units of `To`, rounded up, from 0 to `most` of them, which bounds what is
/// multiplied on the way.
template <class To, class Rep, class Ratio>
constexpr std::int64_t round_up(std::chrono::duration<Rep, Ratio> time, std::int64_t most) noexcept {
    using Rough = std::chrono::duration<double, typename To::period>;
    const double rough = std::chrono::duration_cast<Rough>(time).count();
    if (!(rough > 0)) {  // also NaN
        return 0;
    }
    return rough >= static_cast<double>(most) ? most : std::chrono::ceil<To>(time).count();
}

}  // namespace detail

/// The longest wait to accept. Any std::chrono duration or deadline converts to one:
///
///     limiter.acquire("key", 250ms);
///     limiter.acquire("key", std::chrono::steady_clock::now() + 2s);
///     limiter.acquire("key", limiter::Wait::forever());
///
/// Rounded up to whole milliseconds, at most 2^31 - 1 of them (24 days). 0 and below, and a
/// deadline that has passed, do not wait. A deadline is measured by its own clock when it is
/// converted.
class Wait {
public:
    /// Without limit.
    static constexpr Wait forever() noexcept { return Wait(-1); }

    /// Not at all: try once.
    static constexpr Wait none() noexcept { return Wait(0); }

    /// For a time.
    template <class Rep, class Ratio>
    constexpr Wait(std::chrono::duration<Rep, Ratio> wait) noexcept  // NOLINT
        : milliseconds_(static_cast<std::int32_t>(detail::round_up<std::chrono::milliseconds>(
              wait, std::numeric_limits<std::int32_t>::max()))) {}

    /// Until a deadline, however far.
    template <class Clock, class Duration>
    Wait(std::chrono::time_point<Clock, Duration> deadline) noexcept {  // NOLINT
        // Roughly first: in the clock's own units a far deadline of coarse ones may not fit.
        using Rough = std::chrono::duration<double, std::milli>;
        const auto now = Clock::now();
        const Rough left = Rough(deadline.time_since_epoch()) - Rough(now.time_since_epoch());
        if (!(left.count() > -1)) {
            *this = none();
        } else if (left.count() >= std::numeric_limits<std::int32_t>::max()) {
            *this = Wait(left);
        } else {
            *this = Wait(deadline - now);
        }
    }

    /// As C has it: below 0 without limit.
    constexpr std::int32_t milliseconds() const noexcept { return milliseconds_; }

private:
    explicit constexpr Wait(std::int32_t milliseconds) noexcept : milliseconds_(milliseconds) {}

    std::int32_t milliseconds_ = 0;
};

/// What is asked: whose share, and how much of it. A key converts to a request:
///
///     limiter.try_acquire("user:1");
///     limiter.try_acquire({"user:1", 4096});
///     limiter.try_acquire(Request("user:1").weights({1, 4096}).lease(5s));
///
/// The key is a view: its bytes must live until the call they are given to returns, not longer.
class Request {
public:
    /// The empty key, weight 1.
    constexpr Request() noexcept = default;

    /// A key (any bytes, at most 65 536; anything that converts to std::string_view) and the units
    /// to take from each limit that counts weight. Weight 0 takes nothing, is always admitted,
    /// never jumps a queue and only fills in the numbers.
    template <class Key,
              class = std::enable_if_t<std::is_convertible_v<const Key&, std::string_view>>>
    constexpr Request(const Key& key, std::uint64_t weight = 1) noexcept  // NOLINT
        : key_(key), weight_(weight) {}

    /// Whose share it is.
    constexpr Request& key(std::string_view key) noexcept {
        key_ = key;
        return *this;
    }

    /// Units to take from each limit that counts weight.
    constexpr Request& weight(std::uint64_t weight) noexcept {
        weight_ = weight;
        return *this;
    }

    /// A weight for each limit instead, in their order, copied; a limit with weight 0 is left
    /// alone. As many as the limiter has limits, or the call answers Status::invalid. None:
    /// weight() again.
    Request& weights(const std::uint64_t* weights, std::size_t count) noexcept {
        count_ = count;
        for (std::size_t i = 0; i < count && i < most; ++i) {
            weights_[i] = weights[i];
        }
        return *this;
    }

    /// The same.
    Request& weights(std::initializer_list<std::uint64_t> weights) noexcept {
        return this->weights(weights.begin(), weights.size());
    }

    /// The same.
    Request& weights(const std::vector<std::uint64_t>& weights) noexcept {
        return this->weights(weights.data(), weights.size());
    }

    /// Semaphore: this permit's lease, 100 ms to a day, instead of the limit's.
    constexpr Request& lease(std::chrono::milliseconds lease) noexcept {
        lease_ms_ = detail::lease_ms(lease);
        return *this;
    }

    /// Semaphore: the permit ends after its lease unless Permit::renew() is called.
    constexpr Request& no_renew() noexcept {
        flags_ |= LIMITER_NO_RENEW;
        return *this;
    }

    /// Queue::submit() only: when the permit's lease is lost, the queue answers once more, with
    /// Status::stale, the same operation and tag.
    constexpr Request& tell_lost() noexcept {
        flags_ |= LIMITER_TELL_LOST;
        return *this;
    }

    /// Any number; comes back in Decision::tag(), and is what Client::cancel_waits() goes by.
    /// Default 0.
    constexpr Request& tag(std::uint64_t tag) noexcept {
        tag_ = tag;
        return *this;
    }

    /// As C has it; points into this request.
    limiter_request raw(Wait wait) const noexcept {
        limiter_request raw = LIMITER_INIT(limiter_request);
        raw.key = key_.data();
        raw.key_len = key_.size();
        raw.weight = weight_;
        // More than there can be limits: one too many is enough to be refused.
        raw.weights_len = count_ > most ? most : count_;
        raw.weights = count_ == 0 ? nullptr : weights_.data();
        raw.wait_ms = wait.milliseconds();
        raw.lease_ms = lease_ms_;
        raw.flags = flags_;
        raw.user_data = tag_;
        return raw;
    }

private:
    static constexpr std::size_t most = 17;  // a limiter has at most 16 limits

    std::string_view key_;
    std::uint64_t weight_ = 1;
    std::uint64_t tag_ = 0;
    std::size_t count_ = 0;
    std::uint32_t lease_ms_ = 0;
    std::uint32_t flags_ = 0;
    std::array<std::uint64_t, most> weights_{};
};

}  // namespace limiter

#endif  // LIMITER_REQUEST_HPP
