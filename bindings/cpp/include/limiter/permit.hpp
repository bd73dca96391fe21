/// Permit: what an admitted call holds. Booking: a slot that pace() booked.
/// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef LIMITER_PERMIT_HPP
#define LIMITER_PERMIT_HPP

#include <chrono>
#include <cstdint>
#include <system_error>
#include <thread>
#include <utility>

#include "error.hpp"
#include "limit.hpp"

namespace limiter {

class Limiter;
class Queue;

/// Holds what was admitted, and gives it back when destroyed. Move-only. True while it does. Also
/// carries the answer, so that one that is false says why it is and when to come back:
///
///     Permit permit = limiter.attempt("key");
///     if (!permit) retry_in(permit.decision().retry_after());
///
/// Must not outlive the Limiter (or Queue) that it came from. One thread at a time; it may be
/// destroyed on another thread than it was made on.
class Permit {
public:
    /// Holds nothing.
    Permit() noexcept = default;

    Permit(Permit&& other) noexcept
        : limiter_(other.limiter_),
          id_(std::exchange(other.id_, 0)),
          admitted_(std::exchange(other.admitted_, false)),
          leased_(other.leased_),
          decision_(other.decision_) {}

    /// Gives back what it held before.
    Permit& operator=(Permit&& other) noexcept {
        if (this != &other) {
            give_back();
            limiter_ = other.limiter_;
            id_ = std::exchange(other.id_, 0);
            admitted_ = std::exchange(other.admitted_, false);
            leased_ = other.leased_;
            decision_ = other.decision_;
        }
        return *this;
    }

    Permit(const Permit&) = delete;
    Permit& operator=(const Permit&) = delete;

    /// Gives back what it holds, and says nothing about how that went: see release(). Never waits.
    ~Permit() { give_back(); }

    /// Admitted, and not given back, detached or moved away since. Also where there is nothing to
    /// give back: for weight 0, and for what the failure policy let pass.
    explicit operator bool() const noexcept { return admitted_; }

    /// The number of what is held, 0 for nothing.
    limiter_permit id() const noexcept { return id_; }

    /// The answer that came with it. Stays after release().
    const Decision& decision() const noexcept { return decision_; }

    /// Gives a semaphore's weight to those who wait; what was taken from rates stays taken. Empty
    /// afterwards, whatever comes; nothing to do for an empty one, nor, after many later grants,
    /// for one without a semaphore's weight. Throws error(Status::stale) if a semaphore's was over
    /// already, since its lease was lost while you worked, or an adopted one. Never waits.
    void release() { detail::check(end(), "limiter: release"); }

    /// The same with a code.
    void release(std::error_code& code) noexcept { detail::report(end(), code); }

    /// Makes it live for the lease that it was granted with, from now. Only of use with no_renew():
    /// otherwise the library renews in time. Throws error(Status::stale) if it is over or lost:
    /// then somebody else may hold what you held; error(Status::invalid) if nothing is held here. On
    /// Redis one round trip.
    void renew() { detail::check(renew_ms(0), "limiter: renew"); }

    /// The same with a code.
    void renew(std::error_code& code) noexcept { detail::report(renew_ms(0), code); }

    /// The same for `lease`, 100 ms to a day; Status::invalid outside of that.
    void renew(std::chrono::milliseconds lease) {
        detail::check(renew_ms(detail::lease_ms(lease)), "limiter: renew");
    }

    /// The same with a code.
    void renew(std::chrono::milliseconds lease, std::error_code& code) noexcept {
        detail::report(renew_ms(detail::lease_ms(lease)), code);
    }

    /// Corrects an estimate: `actual` units were used, not the weight asked for, as if that had
    /// been asked from the start. Less is given back as far as time has not given it back already;
    /// more is charged, beyond the limit if need be. Each limit that was charged is corrected, but
    /// semaphores and per_call() limits. Once for each permit, while it is held;
    /// error(Status::stale) otherwise. error(Status::invalid), with no effect, beyond 2^48. The
    /// permit is still held afterwards. On Redis one round trip.
    void settle(std::uint64_t actual) { detail::check(settle_to(actual), "limiter: settle"); }

    /// The same with a code.
    void settle(std::uint64_t actual, std::error_code& code) noexcept {
        detail::report(settle_to(actual), code);
    }

    /// Gives up ownership: nothing is released, and the number is yours to pass on
    /// (Limiter::adopt() makes it a permit again). 0 if nothing was held.
    [[nodiscard]] limiter_permit detach() noexcept {
        admitted_ = false;
        return std::exchange(id_, 0);
    }

private:
    friend class Limiter;
    friend class Queue;

    Permit(limiter_t* limiter, const limiter_decision& decision) noexcept
        : limiter_(limiter),
          id_(decision.status == LIMITER_OK ? decision.permit : 0),
          admitted_(decision.status == LIMITER_OK),
          leased_(decision.fence != 0),
          decision_(decision) {}

    /// Where a verb writes its answer for this empty permit; answered() follows.
    limiter_decision* place(limiter_t* limiter) noexcept {
        limiter_ = limiter;
        return &decision_.raw_;
    }

    void answered(limiter_status status) noexcept {
        decision_.raw_.status = status;
        id_ = status == LIMITER_OK ? decision_.raw_.permit : 0;
        admitted_ = status == LIMITER_OK;
        leased_ = decision_.raw_.fence != 0;
    }

    void give_back() noexcept {
        admitted_ = false;
        if (id_ != 0) {
            (void)limiter_release(limiter_, std::exchange(id_, 0));
        }
    }

    limiter_status end() noexcept {
        admitted_ = false;
        if (id_ == 0) {
            return LIMITER_OK;
        }
        const limiter_status status = limiter_release(limiter_, std::exchange(id_, 0));
        // The library forgets what has nothing to give back.
        return status == LIMITER_STALE && !leased_ ? LIMITER_OK : status;
    }

    limiter_status renew_ms(std::uint32_t lease_ms) noexcept {
        return limiter_renew(limiter_, id_, lease_ms);
    }

    limiter_status settle_to(std::uint64_t actual) noexcept {
        return limiter_settle(limiter_, id_, actual);
    }

    limiter_t* limiter_ = nullptr;
    limiter_permit id_ = 0;
    bool admitted_ = false;
    bool leased_ = false;  // holds a semaphore's weight, whose lease may be lost
    Decision decision_;
};

/// A slot booked by Limiter::pace(): sleep for delay(), then start. A plain value: dropping it
/// keeps the slot, so `limiter.pace("key").delay()` is fine. Its Limiter must live while cancel()
/// or settle() may be called.
class Booking {
public:
    /// Nothing booked.
    Booking() noexcept = default;

    /// A slot is booked (or, for weight 0, nothing is needed).
    explicit operator bool() const noexcept { return limiter_ != nullptr && decision_.ok(); }

    /// How long to sleep, from the moment pace() answered; 0 for now. Where nothing is booked: when
    /// to ask again.
    std::chrono::microseconds delay() const noexcept { return decision_.retry_after(); }

    /// Sleeps for delay(). Call it at once, on the thread that is to start.
    void sleep() const { std::this_thread::sleep_for(delay()); }

    /// Gives the slot back; those booked later do not move up, but the next booking may have it.
    /// Throws error(Status::stale) if that was done before or is long past. After its time it gives
    /// back nothing; where nothing is booked there is nothing to do.
    void cancel() { detail::check(end(), "limiter: cancel a booking"); }

    /// The same with a code.
    void cancel(std::error_code& code) noexcept { detail::report(end(), code); }

    /// As Permit::settle().
    void settle(std::uint64_t actual) {
        detail::check(limiter_settle(limiter_, decision_.permit_id(), actual), "limiter: settle");
    }

    /// The same with a code.
    void settle(std::uint64_t actual, std::error_code& code) noexcept {
        detail::report(limiter_settle(limiter_, decision_.permit_id(), actual), code);
    }

    /// The answer.
    const Decision& decision() const noexcept { return decision_; }

private:
    friend class Limiter;

    Booking(limiter_t* limiter, const limiter_decision& decision) noexcept
        : limiter_(limiter), decision_(decision) {}

    limiter_status end() noexcept {
        const limiter_permit id = decision_.permit_id();
        return id == 0 ? LIMITER_OK : limiter_release(limiter_, id);
    }

    limiter_t* limiter_ = nullptr;
    Decision decision_;
};

}  // namespace limiter

#endif  // LIMITER_PERMIT_HPP
