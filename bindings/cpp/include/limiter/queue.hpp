/// Queue: asynchronous acquires for event loops.
/// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef LIMITER_QUEUE_HPP
#define LIMITER_QUEUE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "limiter.hpp"

namespace limiter {

/// Where finished waits are fetched, with a descriptor for poll, epoll or an event library. One
/// queue serves any number of waits, limiters (of its client) and threads. Move-only.
///
///     Queue queue(client);
///     loop.watch(queue.descriptor());
///     Permit now = queue.submit(limiter, Request("key").tag(7), 5s);
///     if (!now.decision().pending()) done(std::move(now));             // answered at once
///     ...
///     for (Permit& permit : queue.poll()) done(std::move(permit));     // readable
///
/// Permits that came from a queue must not outlive it.
class Queue {
public:
    /// No queue.
    Queue() noexcept = default;

    /// A queue of a client. Throws error(Status::resource) when no descriptor is left.
    explicit Queue(const Client& client) { detail::check(make(client), "limiter: queue"); }

    /// With a code; the queue is empty if it is set.
    Queue(const Client& client, std::error_code& code) {
        detail::report(make(client), code);
    }

    /// There is a queue.
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Readable as long as completions wait. Do not read, write or close it. The number stays the
    /// same, also across fork (call poll() once in the child before waiting for it there). -1
    /// without a queue.
    int descriptor() const noexcept {
        const std::int32_t number = limiter_queue_fd(raw_.get());
        return number < 0 ? -1 : number;
    }

    /// Starts an acquire. The answer's decision() is pending(): it will be polled, once, with the
    /// same operation() and the request's tag. Or it is there at once, whatever it is, and nothing
    /// will be polled. Never waits, never throws.
    [[nodiscard]] Permit submit(const Limiter& limiter, const Request& request = {},
                  Wait wait = Wait::forever()) const noexcept {
        const limiter_request raw = request.raw(wait);
        limiter_decision decision = detail::blank();
        decision.status = limiter_submit(raw_.get(), limiter.native_handle(), &raw, &decision);
        return Permit(home_.native_handle(), decision);
    }

    /// Up to `most` completions, oldest first; waits up to `wait` for the first. Each goes to
    /// exactly one caller. A permit of one that is not wanted is simply dropped. Throws
    /// error(Status::closed) once the client is shut down and everything was polled.
    [[nodiscard]] std::vector<Permit> poll(Wait wait = Wait::none(), std::size_t most = 64) const {
        std::error_code code;
        std::vector<Permit> permits = poll(wait, most, code);
        if (code) {
            detail::raise(error(static_cast<Status>(code.value()), "limiter: poll"));
        }
        return permits;
    }

    /// The same with a code; throws only std::bad_alloc, before anything is taken from the queue.
    [[nodiscard]] std::vector<Permit> poll(Wait wait, std::size_t most, std::error_code& code) const {
        std::vector<limiter_decision> decisions(most);
        std::vector<Permit> permits;
        permits.reserve(most);
        const std::int32_t count =
            limiter_queue_poll(raw_.get(), decisions.data(), most, wait.milliseconds());
        detail::report(count < 0 ? count : LIMITER_OK, code);
        for (std::int32_t i = 0; i < count; ++i) {
            permits.push_back(
                Permit(home_.native_handle(), decisions[static_cast<std::size_t>(i)]));
        }
        return permits;
    }

    /// Ends a wait: it will be polled with Status::cancelled, or with its permit where the grant
    /// came first. False, with no effect: it was polled before. Never waits.
    bool cancel(limiter_op operation) const noexcept {
        return detail::Core::cancel(core_, operation, 0);
    }

    /// Ends a wait of which nothing shall be polled; a grant that came first is given back. False:
    /// it was polled before. Never waits.
    bool detach(limiter_op operation) const noexcept {
        return detail::Core::cancel(core_, operation, LIMITER_DETACH);
    }

    /// As C has it; nullptr for an empty queue. Still owned here.
    limiter_queue_t* native_handle() const noexcept { return raw_.get(); }

private:
    struct Free {
        void operator()(limiter_queue_t* queue) const noexcept { limiter_queue_free(queue); }
    };

    limiter_status make(const Client& client) {
        limiter_queue_t* made = nullptr;
        limiter_status status = limiter_queue_new(client.native_handle(), &made);
        raw_.reset(made);
        core_ = client.core_;
        if (status == LIMITER_OK) {
            std::error_code code;
            home_ = Limiter(client, "limiter.hpp queue", {Limit::unlimited()}, code);
            status = code.value();
        }
        if (status != LIMITER_OK) {
            raw_.reset();
        }
        return status;
    }

    // Any limiter of the client releases its permits: this one is there for as long as the queue,
    // while those that were submitted may be gone when an answer is polled.
    Limiter home_;
    std::unique_ptr<limiter_queue_t, Free> raw_;
    std::weak_ptr<detail::Core> core_;
};

}  // namespace limiter

#endif  // LIMITER_QUEUE_HPP
