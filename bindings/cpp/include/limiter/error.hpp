/// limiter::error, and how a status becomes an exception or a code.
/// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef LIMITER_ERROR_HPP
#define LIMITER_ERROR_HPP

#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>

#include "decision.hpp"

namespace limiter {

/// What every throwing function throws. `code()` is a Status; `what()` says what was asked and, for
/// settings and limits, what is allowed.
class LIMITER_API error : public std::system_error {
public:
    /// From a status, and a message for `what()`.
    error(Status status, const std::string& what)
        : std::system_error(make_error_code(status), what) {}

    /// From the answer of a verb.
    error(const Decision& decision, const std::string& what)
        : std::system_error(decision.code(), what), decision_(decision) {}

    /// code(), as a Status.
    Status status() const noexcept { return static_cast<Status>(code().value()); }

    /// The answer where a verb gave one (retry_after() of a denial), else all numbers 0.
    const Decision& decision() const noexcept { return decision_; }

private:
    Decision decision_;
};

namespace detail {

/// Throws `failure`, or aborts with its message where exceptions are off.
[[noreturn]] inline void raise(const error& failure) {
#if defined(__cpp_exceptions)
    throw failure;
#else
    std::fprintf(stderr, "%s\n", failure.what());
    std::abort();
#endif
}

/// Throws unless `status` is ok.
inline void check(limiter_status status, const char* what) {
    if (status != LIMITER_OK) {
        raise(error(static_cast<Status>(status), what));
    }
}

/// Sets or clears `code`.
inline void report(limiter_status status, std::error_code& code) noexcept {
    code = make_error_code(static_cast<Status>(status));
}

/// Where a set-up call writes why it refused.
class Reason {
public:
    char* buffer() noexcept { return text_; }
    static constexpr std::size_t size() noexcept { return sizeof(text_); }

    /// Where it is not the library that refuses.
    void say(const char* why) noexcept { std::snprintf(text_, size(), "%s", why); }

    /// Throws unless `status` is ok; the message names `what` and the reason.
    void check(limiter_status status, const char* what) const {
        if (status != LIMITER_OK) {
            std::string message(what);
            if (text_[0] != '\0') {
                message += ": ";
                message += text_;
            }
            raise(error(static_cast<Status>(status), message));
        }
    }

private:
    char text_[LIMITER_ERRBUF_SIZE] = {};
};

/// limiter.hpp was compiled for one ABI; the loaded library must have the same.
inline limiter_status check_abi(Reason& reason) noexcept {
    const unsigned loaded = limiter_abi_version();
    if (loaded == LIMITER_ABI) {
        return LIMITER_OK;
    }
    std::snprintf(reason.buffer(), Reason::size(),
                  "compiled for liblimiter ABI %u, but ABI %u is loaded",
                  static_cast<unsigned>(LIMITER_ABI), loaded);
    return LIMITER_UNSUPPORTED;
}

}  // namespace detail
}  // namespace limiter

#endif  // LIMITER_ERROR_HPP
