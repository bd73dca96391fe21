/// Decision: the answer of a limiter, with its numbers.
/// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef LIMITER_DECISION_HPP
#define LIMITER_DECISION_HPP

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

#include "status.hpp"

namespace limiter {

class Permit;

namespace detail {

/// What a verb's answer is written over: no limit is meant.
constexpr limiter_decision blank() noexcept {
    limiter_decision decision = LIMITER_INIT(limiter_decision);
    decision.index = LIMITER_NO_INDEX;
    return decision;
}

}  // namespace detail

/// The answer, with its numbers. A plain value: copying it neither takes nor gives anything back.
class Decision {
public:
    /// Status::ok and all numbers 0.
    constexpr Decision() noexcept = default;

    /// From C.
    explicit constexpr Decision(const limiter_decision& raw) noexcept : raw_(raw) {}

    /// How it ended.
    constexpr Status status() const noexcept { return static_cast<Status>(raw_.status); }

    /// The status as an error code; false for Status::ok.
    std::error_code code() const noexcept { return make_error_code(status()); }

    /// Admitted (or, for what takes nothing: done).
    constexpr bool ok() const noexcept { return raw_.status == LIMITER_OK; }

    /// A completion is still to come.
    constexpr bool pending() const noexcept { return raw_.status == LIMITER_PENDING; }

    /// Answered by the failure policy, because the backend could not.
    constexpr bool degraded() const noexcept { return (raw_.flags & LIMITER_DEGRADED) != 0; }

    /// Degraded, and the request was sent and its answer lost: charged once or not at all.
    constexpr bool maybe_charged() const noexcept {
        return (raw_.flags & LIMITER_MAYBE_CHARGED) != 0;
    }

    /// Units that the limit named by index() allows at most.
    constexpr std::uint64_t limit() const noexcept { return raw_.limit; }

    /// Units of it that could be taken at this moment: 0 to limit().
    constexpr std::uint64_t remaining() const noexcept { return raw_.remaining; }

    /// Denied: coming back after exactly this is admitted if nobody else comes; above 0. Paced: how
    /// long to sleep. Never: microseconds::max(). Otherwise 0.
    constexpr std::chrono::microseconds retry_after() const noexcept {
        return micros(raw_.retry_after_us);
    }

    /// Until that limit is as good as new if nobody else comes; of a sliding log, until its oldest
    /// entry leaves.
    constexpr std::chrono::microseconds reset_after() const noexcept {
        return micros(raw_.reset_after_us);
    }

    /// How long the call waited.
    constexpr std::chrono::microseconds waited() const noexcept { return micros(raw_.waited_us); }

    /// Semaphore: grows with every grant on the key, so that a resource can refuse an older holder.
    /// Otherwise 0.
    constexpr std::uint64_t fence() const noexcept { return raw_.fence; }

    /// Position, from 0, of the limit that refused, else of the one with the least remaining. Empty
    /// where there are no numbers.
    constexpr std::optional<std::uint32_t> index() const noexcept {
        if (raw_.index == LIMITER_NO_INDEX) {
            return std::nullopt;
        }
        return raw_.index;
    }

    /// Pending: how many waited ahead when it was queued.
    constexpr std::uint32_t queue_position() const noexcept { return raw_.queue_position; }

    /// The number of the permit granted, 0 for none. Not an owner: see Permit.
    constexpr limiter_permit permit_id() const noexcept { return raw_.permit; }

    /// The operation under way or completed, 0 for none.
    constexpr limiter_op operation() const noexcept { return raw_.op; }

    /// The request's tag.
    constexpr std::uint64_t tag() const noexcept { return raw_.user_data; }

    /// As C has it.
    constexpr const limiter_decision& raw() const noexcept { return raw_; }

private:
    friend class Permit;

    static constexpr std::chrono::microseconds micros(std::uint64_t value) noexcept {
        using Rep = std::chrono::microseconds::rep;
        constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Rep>::max());
        return value >= most ? std::chrono::microseconds::max()
                             : std::chrono::microseconds(static_cast<Rep>(value));
    }

    limiter_decision raw_ = detail::blank();
};

}  // namespace limiter

#endif  // LIMITER_DECISION_HPP
