/// Limiter: a name with limits, and the verbs.
/// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef LIMITER_LIMITER_HPP
#define LIMITER_LIMITER_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "client.hpp"
#include "permit.hpp"
#include "request.hpp"

namespace limiter {

/// An asynchronous acquire under way. A plain value; may outlive everything else.
class Operation {
public:
    /// None.
    Operation() noexcept = default;

    /// The operation's number, 0 for none.
    limiter_op id() const noexcept { return id_; }

    /// Ends the wait; the callable is still called, once: with Status::cancelled, or with the
    /// permit where the grant came first. False: it has been called already. Never waits; may be
    /// called from a callback.
    bool cancel() const noexcept { return detail::Core::cancel(core_, id_, 0); }

    /// Ends the wait, and destroys the callable uncalled, here; a grant that came first is given
    /// back. False: it has been called already, or that is happening now. Never waits.
    bool detach() const noexcept {
        if (!detail::Core::cancel(core_, id_, LIMITER_DETACH)) {
            return false;
        }
        drop_(held_);  // nobody else has it any more, and only one detach() gets here
        return true;
    }

private:
    friend class Limiter;

    using Drop = void (*)(void*) noexcept;

    Operation(std::weak_ptr<detail::Core> core, limiter_op id, void* held, Drop drop) noexcept
        : core_(std::move(core)), id_(id), held_(held), drop_(drop) {}

    std::weak_ptr<detail::Core> core_;
    limiter_op id_ = 0;
    void* held_ = nullptr;
    Drop drop_ = nullptr;
};

/// A name and its limits; those of one name and the same kinds of limit, in the same order, share
/// their state: within a memory client, or across all processes on one Redis. Move-only; a moved
/// one is the same limiter, so permits stay valid. Must outlive its permits and bookings.
///
/// Every verb takes a Request, to which a key converts; the default is the empty key and weight 1.
class Limiter {
public:
    /// No limiter.
    Limiter() noexcept = default;

    /// `name` is 1 to 1024 bytes of UTF-8; 1 to 16 limits. Each acquire takes from all of them or
    /// from none. Throws error(Status::config) when a limit is out of range; what() says which one,
    /// which field and what is allowed. Making a name again with other numbers changes it for
    /// everybody from the next call on: state is clamped, never reset.
    Limiter(const Client& client, const std::string& name, const std::vector<Limit>& limits) {
        detail::Reason reason;
        reason.check(make(client, name, limits.data(), limits.size(), reason), "limiter: limiter");
    }

    /// The same.
    Limiter(const Client& client, const std::string& name, std::initializer_list<Limit> limits) {
        detail::Reason reason;
        reason.check(make(client, name, limits.begin(), limits.size(), reason), "limiter: limiter");
    }

    /// With a code; the limiter is empty if it is set.
    Limiter(const Client& client, const std::string& name, const std::vector<Limit>& limits,
            std::error_code& code) {
        detail::Reason reason;
        detail::report(make(client, name, limits.data(), limits.size(), reason), code);
    }

    /// The same.
    Limiter(const Client& client, const std::string& name, std::initializer_list<Limit> limits,
            std::error_code& code) {
        detail::Reason reason;
        detail::report(make(client, name, limits.begin(), limits.size(), reason), code);
    }

    Limiter(Limiter&&) noexcept = default;
    Limiter& operator=(Limiter&&) noexcept = default;
    Limiter(const Limiter&) = delete;
    Limiter& operator=(const Limiter&) = delete;
    ~Limiter() = default;

    /// There is a limiter.
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Asks, waits up to `wait`, and answers all there is to know: a permit, or an empty one whose
    /// decision() says why. The verb under the others; throws nothing.
    [[nodiscard]] Permit attempt(const Request& request = {}, Wait wait = Wait::none()) const noexcept {
        Permit permit;
        ask(request, wait, permit);
        return permit;
    }

    /// Takes from all limits; waits for it, first in, first out. A wait known to be longer than
    /// `wait` is refused at once, and nothing is booked. Throws error: Status::denied (not within
    /// `wait`; when to come back is in error::decision()), Status::never, Status::cancelled,
    /// Status::closed, Status::overloaded, Status::backend, Status::unknown_outcome.
    [[nodiscard]] Permit acquire(const Request& request = {}, Wait wait = Wait::forever()) const {
        Permit permit = attempt(request, wait);
        if (!permit.decision().ok()) {
            detail::raise(error(permit.decision(), said("limiter: acquire", permit.decision(), request)));
        }
        return permit;
    }

    /// The same with a code; the permit is empty if it is set.
    [[nodiscard]] Permit acquire(const Request& request, Wait wait, std::error_code& code) const noexcept {
        Permit permit = attempt(request, wait);
        code = permit.decision().code();
        return permit;
    }

    /// The same without a limit to the wait.
    [[nodiscard]] Permit acquire(const Request& request, std::error_code& code) const noexcept {
        return acquire(request, Wait::forever(), code);
    }

    /// As acquire(), but refusal is a value: empty for Status::denied and Status::never. Throws
    /// error for everything else that is not admission. Does not wait unless told to, and never
    /// overtakes those who do. Use attempt() to learn when to come back.
    [[nodiscard]] std::optional<Permit> try_acquire(const Request& request = {}, Wait wait = Wait::none()) const {
        std::optional<Permit> permit(std::in_place);
        ask(request, wait, *permit);
        if (!permit->decision().ok()) {
            if (permit->decision().code() != Condition::refused) {
                detail::raise(error(permit->decision(),
                                    said("limiter: try to acquire", permit->decision(), request)));
            }
            permit.reset();
        }
        return permit;
    }

    /// The same with a code, which a refusal clears.
    [[nodiscard]] std::optional<Permit> try_acquire(const Request& request, Wait wait,
                                      std::error_code& code) const noexcept {
        std::optional<Permit> permit(std::in_place);
        ask(request, wait, *permit);
        code = permit->decision().code();
        if (code) {
            if (code == Condition::refused) {
                code.clear();
            }
            permit.reset();
        }
        return permit;
    }

    /// The same without a wait.
    [[nodiscard]] std::optional<Permit> try_acquire(const Request& request,
                                      std::error_code& code) const noexcept {
        return try_acquire(request, Wait::none(), code);
    }

    /// Books the next moment at which the request may start, and answers how long to sleep until
    /// then. The slot is yours: sleep, then start. Waits for nothing itself. Throws
    /// error(Status::denied), with nothing booked, if the sleep would be longer than `longest`;
    /// error(Status::invalid) for a limiter that holds a semaphore; otherwise as acquire().
    [[nodiscard]] Booking pace(const Request& request = {}, Wait longest = Wait::forever()) const {
        Booking booking = book(request, longest);
        if (!booking.decision().ok()) {
            std::string text = said("limiter: pace", booking.decision(), request);
            if (holds_ && booking.decision().status() == Status::invalid) {
                text += ": a limiter with a semaphore cannot be paced: acquire() is the verb";
            }
            detail::raise(error(booking.decision(), text));
        }
        return booking;
    }

    /// The same with a code; nothing is booked if it is set.
    [[nodiscard]] Booking pace(const Request& request, Wait longest, std::error_code& code) const noexcept {
        Booking booking = book(request, longest);
        code = booking.decision().code();
        return booking;
    }

    /// The same for any delay.
    [[nodiscard]] Booking pace(const Request& request, std::error_code& code) const noexcept {
        return pace(request, Wait::forever(), code);
    }

    /// What attempt() without a wait would answer now, charging nothing: the status is ok, denied,
    /// never or an error.
    [[nodiscard]] Decision peek(const Request& request = {}) const noexcept {
        const limiter_request raw = request.raw(Wait::none());
        limiter_decision decision = detail::blank();
        decision.status = limiter_peek(raw_.get(), &raw, &decision);
        return Decision(decision);
    }

    /// Makes a key as new: rates and windows start afresh, permits held on it become Status::stale,
    /// and those who wait are admitted as the new state allows. Throws error.
    void reset(std::string_view key = {}) const {
        detail::check(limiter_reset(raw_.get(), key.data(), key.size()), "limiter: reset");
    }

    /// The same with a code.
    void reset(std::string_view key, std::error_code& code) const noexcept {
        detail::report(limiter_reset(raw_.get(), key.data(), key.size()), code);
    }

    /// Lets nothing start on a key for `retry_after` from now, at most `max_penalty`: what to call
    /// when the service behind it said "too many requests, come back in". Never shortens a penalty.
    /// Any duration, however long, rounded up to microseconds; a negative one counts as none.
    /// Throws error.
    template <class Rep, class Ratio>
    void penalize(std::string_view key, std::chrono::duration<Rep, Ratio> retry_after) const {
        detail::check(punish(key, retry_after), "limiter: penalize");
    }

    /// The same with a code.
    template <class Rep, class Ratio>
    void penalize(std::string_view key, std::chrono::duration<Rep, Ratio> retry_after,
                  std::error_code& code) const noexcept {
        detail::report(punish(key, retry_after), code);
    }

    /// Up to 65 536 requests without a wait, decided in their order as if by attempt() one after
    /// another; one round trip on Redis. A permit for each, empty where refused. Throws error, with
    /// nothing done, if they could not be decided.
    [[nodiscard]] std::vector<Permit> try_many(const std::vector<Request>& requests) const {
        std::error_code code;
        std::vector<Permit> permits = try_many(requests, code);
        if (code) {
            detail::raise(error(static_cast<Status>(code.value()), "limiter: try many"));
        }
        return permits;
    }

    /// The same with a code; no permits if it is set.
    [[nodiscard]] std::vector<Permit> try_many(const std::vector<Request>& requests,
                                 std::error_code& code) const {
        std::vector<Permit> permits;
        permits.reserve(requests.size());
        std::vector<limiter_request> raw;
        raw.reserve(requests.size());
        for (const Request& request : requests) {
            raw.push_back(request.raw(Wait::none()));
        }
        std::vector<limiter_decision> decisions(raw.size());
        detail::report(
            limiter_try_many(raw_.get(), raw.data(), decisions.data(), raw.size()), code);
        if (!code) {
            for (const limiter_decision& decision : decisions) {
                permits.push_back(Permit(raw_.get(), decision));
            }
        }
        return permits;
    }

    /// Starts an acquire, whose answer `then(Permit)` receives on the library's callback thread,
    /// exactly once, even where it is known already: holding a permit, or empty with the reason in
    /// decision(). `then` is anything that std::invoke() takes, may be move-only, must not block for long (one thread runs them all), and
    /// must not throw. It may outlast this Limiter; a permit that it moves elsewhere may not.
    /// Throws error if nothing was started; `then` is never called then. Status::invalid for an
    /// empty std::function or a null pointer. Never waits.
    template <class Then>
    Operation acquire_async(const Request& request, Wait wait, Then&& then) const {
        std::error_code code;
        const Operation operation = acquire_async(request, wait, std::forward<Then>(then), code);
        if (code) {
            detail::raise(error(static_cast<Status>(code.value()), "limiter: acquire_async"));
        }
        return operation;
    }

    /// The same with a code.
    template <class Then>
    Operation acquire_async(const Request& request, Wait wait, Then&& then,
                            std::error_code& code) const {
        static_assert(std::is_invocable_v<std::decay_t<Then>, Permit>,
                      "the callable must take a limiter::Permit");
        if (is_none<std::decay_t<Then>>(then)) {
            detail::report(LIMITER_INVALID, code);
            return Operation();
        }
        using Held = Continuation<std::decay_t<Then>>;
        auto held = std::make_unique<Held>(raw_, std::forward<Then>(then));
        const limiter_request raw = request.raw(wait);
        limiter_op op = 0;
        const limiter_status status =
            limiter_acquire_cb(raw_.get(), &raw, &Held::run, held.get(), &op);
        if (status == LIMITER_PENDING) {
            // run() has it now, perhaps already on the other thread
            void* const theirs = held.release();
            code.clear();
            return Operation(core_, op, theirs, &Held::drop);
        }
        detail::report(status, code);
        return Operation();
    }

    /// Makes a permit of a number that Permit::detach() gave, of this limiter or another of its
    /// client.
    [[nodiscard]] Permit adopt(limiter_permit id) const noexcept {
        limiter_decision decision = detail::blank();
        decision.permit = id;
        Permit permit(raw_.get(), decision);
        permit.admitted_ = id != 0;
        permit.leased_ = true;  // what it holds is not known here, so release() says all it hears
        return permit;
    }

    /// What to answer when Redis cannot, for this limiter alone, from the next call on. Throws error.
    Limiter& on_failure(OnFailure policy) {
        std::error_code code;
        on_failure(policy, code);
        if (code) {
            detail::raise(error(static_cast<Status>(code.value()), "limiter: on_failure"));
        }
        return *this;
    }

    /// The same with a code.
    Limiter& on_failure(OnFailure policy, std::error_code& code) noexcept {
        detail::Reason reason;
        detail::report(limiter_set(raw_.get(), "on_failure", detail::name_of(policy), reason.buffer(),
                                   detail::Reason::size()),
                       code);
        return *this;
    }

    /// As C has it; nullptr for an empty limiter. Still owned here.
    limiter_t* native_handle() const noexcept { return raw_.get(); }

private:
    /// An empty std::function, or a null pointer.
    template <class Then>
    static bool is_none(const Then& then) {
        if constexpr (std::is_constructible_v<Then, std::nullptr_t> &&
                      std::is_constructible_v<bool, const Then&>) {
            return !static_cast<bool>(then);
        } else {
            (void)then;
            return false;
        }
    }

    /// A callable on the heap between acquire_async() and its answer.
    template <class Then>
    struct Continuation {
        template <class From>
        Continuation(std::shared_ptr<limiter_t> from, From&& callable)
            : limiter(std::move(from)), then(std::forward<From>(callable)) {}

        static void run(void* self, const limiter_decision* decision) noexcept {
            const std::unique_ptr<Continuation> held(static_cast<Continuation*>(self));
            std::invoke(std::move(held->then), Permit(held->limiter.get(), *decision));
        }

        static void drop(void* self) noexcept { delete static_cast<Continuation*>(self); }

        std::shared_ptr<limiter_t> limiter;
        Then then;
    };

    limiter_status make(const Client& client, const std::string& name, const Limit* limits,
                        std::size_t count, detail::Reason& reason) {
        // A limiter has at most 16; with 17 the library says so itself.
        constexpr std::size_t most = 17;
        limiter_limit raw[most] = {};
        if (name.find('\0') != std::string::npos) {
            reason.say("a name holds a NUL");
            return LIMITER_INVALID;
        }
        const std::size_t given = count < most ? count : most;
        for (std::size_t i = 0; i < given; ++i) {
            raw[i] = limits[i].raw();
        }
        limiter_t* made = nullptr;
        const limiter_status status = limiter_new(client.native_handle(), name.c_str(), raw, given,
                                                  &made, reason.buffer(), detail::Reason::size());
        if (made != nullptr) {
            raw_ = std::shared_ptr<limiter_t>(made, &limiter_free);
        }
        core_ = client.core_;
        count_ = given;
        holds_ = false;
        for (std::size_t i = 0; i < given; ++i) {
            holds_ = holds_ || raw[i].kind == LIMITER_SEMAPHORE;
        }
        return status;
    }

    /// What was asked, who denied it, and, where the library found it invalid, why: it says no more
    /// than that.
    std::string said(const char* verb, const Decision& decision, const Request& request) const {
        std::string text(verb);
        if (decision.status() == Status::denied) {
            text += decision.index() ? " by limit " + std::to_string(*decision.index())
                                     : std::string(" by the failure policy");
            text += ", retry after " + std::to_string(decision.retry_after().count()) + " us";
        }
        if (decision.status() != Status::invalid) {
            return text;
        }
        const limiter_request raw = request.raw(Wait::none());
        if (!raw_) {
            text += ": there is no limiter";
        } else if (raw.key_len > 65536) {
            text += ": a key of " + std::to_string(raw.key_len) + " bytes: at most 65536";
        } else if (raw.weights_len != 0 && raw.weights_len != count_) {
            text += ": " + std::to_string(raw.weights_len) + " weights for " +
                    std::to_string(count_) + " limits";
        } else if (raw.lease_ms != 0 && (raw.lease_ms < 100 || raw.lease_ms > 86400000)) {
            text += ": a lease of " + std::to_string(raw.lease_ms) + " ms: 100 to 86400000";
        }
        return text;
    }

    void ask(const Request& request, Wait wait, Permit& empty) const noexcept {
        const limiter_request raw = request.raw(wait);
        empty.answered(limiter_acquire(raw_.get(), &raw, empty.place(raw_.get())));
    }

    Booking book(const Request& request, Wait longest) const noexcept {
        const limiter_request raw = request.raw(longest);
        limiter_decision decision = detail::blank();
        decision.status = limiter_pace(raw_.get(), &raw, &decision);
        return Booking(raw_.get(), decision);
    }

    template <class Rep, class Ratio>
    limiter_status punish(std::string_view key,
                          std::chrono::duration<Rep, Ratio> time) const noexcept {
        constexpr std::int64_t most = std::int64_t{1} << 52;  // more than any max_penalty
        const std::int64_t us = detail::round_up<std::chrono::microseconds>(time, most);
        return limiter_penalize(raw_.get(), key.data(), key.size(), static_cast<std::uint64_t>(us));
    }

    // Shared only with continuations; permits hold the bare pointer.
    std::shared_ptr<limiter_t> raw_;
    std::weak_ptr<detail::Core> core_;
    std::size_t count_ = 0;
    bool holds_ = false;
};

}  // namespace limiter

#endif  // LIMITER_LIMITER_HPP
