/// liblimiter for C++17 and later: limits what programs do across machines, from memory or Redis.
///
/// SPDX-License-Identifier: MIT OR Apache-2.0
///
/// Header-only, over the C library: link with `limiter::cpp` (CMake) or `pkg-config limiter`.
///
///     limiter::Client client;                                   // memory://
///     limiter::Limiter upstream(client, "upstream",
///                               {limiter::Limit::semaphore(4),
///                                limiter::Limit::token_bucket(20, 200, 1s)});
///     {
///         limiter::Permit permit = upstream.acquire("user:1", 5s);   // throws limiter::error
///         work();
///     }                                                              // released
///     if (auto permit = upstream.try_acquire("user:1")) work();      // std::optional
///
/// WORDS are those of limiter.h: client, limiter, limit, key, weight, permit, lease, decision. What
/// each limit does, what each status means and which numbers fit is written there; here is written
/// what C++ adds.
///
/// ERRORS. As in <filesystem>: a function without a `std::error_code&` throws `limiter::error` (a
/// `std::system_error` that carries the decision); its twin with one never throws but for memory
/// (std::bad_alloc, where it returns something that allocates) and clears the code on success. A
/// function marked noexcept that takes neither answers with a value. Nothing is charged or held
/// when an error is told, but for Status::unknown_outcome.
///
/// OWNERSHIP. Client, Config, Limiter, Queue and Permit are move-only owners; a moved-from or
/// default-made one is empty, `explicit operator bool` says so, and its functions answer
/// Status::invalid. A Limiter must outlive its permits and bookings, as a mutex outlives its locks,
/// and a Queue those that it polled. A Client may go before all others: they answer Status::closed
/// then, and there is nothing left to cancel.
///
/// THREADS. Const functions may be called from any number of threads at once. Moving, assigning and
/// destroying must not run together with another call on the same object, nor may Config be shared.
///
/// BLOCKING. Limiter::acquire(), try_acquire() and attempt() with a wait, Queue::poll() with a
/// wait, Client::shutdown() and ~Client() block. From a callback they answer
/// Status::would_deadlock; ~Client() there leaks rather than blocks. On Redis the other verbs take
/// one round trip, bounded by `command_timeout`; Permit::release() and ~Permit() never wait.
///
/// CALLBACKS. Callables given to acquire_async() and Config::on_lost() run on one library thread of
/// their own; Config::on_log() on any. An exception that leaves one calls std::terminate, as with
/// std::thread; none reaches the C library.
///
/// WITHOUT EXCEPTIONS (-fno-exceptions) all of it compiles; where it would throw it writes the
/// message to stderr and aborts. Use the `std::error_code&` overloads then.
///
/// FORK. Objects stay valid in a forked child; the parent's permits answer Status::forked there,
/// and destroying them disturbs nobody.
#ifndef LIMITER_HPP
#define LIMITER_HPP

#include "limiter/client.hpp"
#include "limiter/decision.hpp"
#include "limiter/error.hpp"
#include "limiter/limit.hpp"
#include "limiter/limiter.hpp"
#include "limiter/permit.hpp"
#include "limiter/queue.hpp"
#include "limiter/request.hpp"
#include "limiter/status.hpp"

#endif  // LIMITER_HPP
