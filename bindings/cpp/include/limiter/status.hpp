/// Status as a std::error_code, with the conditions that programs act on.
/// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef LIMITER_STATUS_HPP
#define LIMITER_STATUS_HPP

#include <limiter.h>

#include <cstdint>
#include <string>
#include <system_error>
#include <type_traits>

namespace limiter {

/// How a call ended. The values are those of limiter.h and never change. Converts to
/// std::error_code.
enum class Status : std::int32_t {
    ok = LIMITER_OK,                            ///< Done, or admitted.
    pending = LIMITER_PENDING,                  ///< Started; one completion will follow.
    denied = LIMITER_DENIED,                    ///< Not within the wait.
    never = LIMITER_NEVER,                      ///< Can never be admitted; waiting is pointless.
    invalid = LIMITER_INVALID,                  ///< Nonsense, or an empty object.
    config = LIMITER_CONFIG,                    ///< A URL, a setting or a limit was refused.
    closed = LIMITER_CLOSED,                    ///< The client has been shut down or destroyed.
    timeout = LIMITER_TIMEOUT,                  ///< A deadline of the library's own passed.
    cancelled = LIMITER_CANCELLED,              ///< The wait was cancelled.
    backend = LIMITER_BACKEND,                  ///< The backend failed; nothing was charged.
    unknown_outcome = LIMITER_UNKNOWN_OUTCOME,  ///< Charged once or not at all.
    stale = LIMITER_STALE,                      ///< The permit or operation is over.
    forked = LIMITER_FORKED,                    ///< It belongs to the process that forked this one.
    would_deadlock = LIMITER_WOULD_DEADLOCK,    ///< A blocking call from a callback.
    overloaded = LIMITER_OVERLOADED,            ///< `max_waiting` waits are under way.
    resource = LIMITER_RESOURCE,                ///< No descriptor, thread or memory left.
    unsupported = LIMITER_UNSUPPORTED,          ///< That cannot be done here.
    panic = LIMITER_PANIC                       ///< A bug in the library, caught at its border.
};

/// What a program does about a status: compare a std::error_code with one of these.
///
///     if (ec == limiter::Condition::refused) answer_429();
enum class Condition : int {
    refused = 1,      ///< denied, never: the limits say no.
    overloaded = 2,   ///< overloaded, resource: this process is at its own bounds.
    unavailable = 3,  ///< backend, unknown_outcome, timeout: the limits could not be asked.
    ended = 4,        ///< cancelled, closed: somebody here ended it.
    gone = 5          ///< stale, forked: the permit or operation is not (or no longer) ours.
};

/// The name of a status, such as "LIMITER_DENIED". Static.
inline const char* name(Status status) noexcept {
    return limiter_status_name(static_cast<limiter_status>(status));
}

/// A status in an English sentence without a full stop. Static.
inline const char* message(Status status) noexcept {
    return limiter_status_message(static_cast<limiter_status>(status));
}

/// Version of the loaded library: major << 16 | minor << 8 | patch. That of the header is
/// LIMITER_VERSION_MAJOR and so on.
inline std::uint32_t version() noexcept { return limiter_version(); }

namespace detail {

/// The condition a status falls under, or 0.
constexpr int condition_of(Status status) noexcept {
    switch (status) {
        case Status::denied:
        case Status::never:
            return static_cast<int>(Condition::refused);
        case Status::overloaded:
        case Status::resource:
            return static_cast<int>(Condition::overloaded);
        case Status::backend:
        case Status::unknown_outcome:
        case Status::timeout:
            return static_cast<int>(Condition::unavailable);
        case Status::cancelled:
        case Status::closed:
            return static_cast<int>(Condition::ended);
        case Status::stale:
        case Status::forked:
            return static_cast<int>(Condition::gone);
        case Status::ok:
        case Status::pending:
        case Status::invalid:
        case Status::config:
        case Status::would_deadlock:
        case Status::unsupported:
        case Status::panic:
            break;
    }
    return 0;
}

class LIMITER_API StatusCategory final : public std::error_category {
public:
    const char* name() const noexcept override { return "limiter"; }

    std::string message(int value) const override { return limiter_status_message(value); }

    /// The portable condition, where POSIX has one that means the same.
    std::error_condition default_error_condition(int value) const noexcept override {
        switch (static_cast<Status>(value)) {
            case Status::denied:
                return std::errc::resource_unavailable_try_again;
            case Status::invalid:
            case Status::config:
                return std::errc::invalid_argument;
            case Status::timeout:
                return std::errc::timed_out;
            case Status::cancelled:
                return std::errc::operation_canceled;
            case Status::would_deadlock:
                return std::errc::resource_deadlock_would_occur;
            case Status::unsupported:
                return std::errc::operation_not_supported;
            case Status::ok:
            case Status::pending:
            case Status::never:
            case Status::closed:
            case Status::backend:
            case Status::unknown_outcome:
            case Status::stale:
            case Status::forked:
            case Status::overloaded:
            case Status::resource:
            case Status::panic:
                break;
        }
        return std::error_condition(value, *this);
    }
};

class LIMITER_API ConditionCategory final : public std::error_category {
public:
    const char* name() const noexcept override { return "limiter condition"; }

    std::string message(int value) const override {
        switch (static_cast<Condition>(value)) {
            case Condition::refused:
                return "the limits refuse it";
            case Condition::overloaded:
                return "this process is at its own bounds";
            case Condition::unavailable:
                return "the limits could not be asked";
            case Condition::ended:
                return "the wait or the client was ended";
            case Condition::gone:
                return "the permit or operation is not ours";
        }
        return "no condition";
    }

    bool equivalent(const std::error_code& code, int value) const noexcept override;
};

}  // namespace detail

/// The category of every std::error_code made from a Status.
LIMITER_API inline const std::error_category& category() noexcept {
    static const detail::StatusCategory instance;
    return instance;
}

/// The category of Condition.
LIMITER_API inline const std::error_category& condition_category() noexcept {
    static const detail::ConditionCategory instance;
    return instance;
}

inline bool detail::ConditionCategory::equivalent(const std::error_code& code,
                                                  int value) const noexcept {
    return code.category() == category() &&
           condition_of(static_cast<Status>(code.value())) == value;
}

/// Found by std::error_code's constructor; Status::ok makes one that is false.
inline std::error_code make_error_code(Status status) noexcept {
    return std::error_code(static_cast<int>(status), category());
}

/// Found by std::error_condition's constructor.
inline std::error_condition make_error_condition(Condition condition) noexcept {
    return std::error_condition(static_cast<int>(condition), condition_category());
}

}  // namespace limiter

template <>
struct std::is_error_code_enum<limiter::Status> : std::true_type {};

template <>
struct std::is_error_condition_enum<limiter::Condition> : std::true_type {};

#endif  // LIMITER_STATUS_HPP
