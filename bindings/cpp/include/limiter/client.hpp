/// Config and Client: where the state lives, and what runs in the background for it.
/// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef LIMITER_CLIENT_HPP
#define LIMITER_CLIENT_HPP

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "error.hpp"
#include "request.hpp"

namespace limiter {

/// How much a log record matters.
enum class Level : std::int32_t { none = 0, error = 1, warning = 2, info = 3, debug = 4 };

/// What to answer when Redis cannot: Status::backend, admit, deny, or this process's share in
/// memory.
enum class OnFailure { error, open, closed, local };

/// Counters of a client in this process; see limiter.h for each.
using Stats = limiter_stats;

namespace detail {

/// As the library's settings have it; nothing of that name for a value that is none.
inline const char* name_of(OnFailure policy) noexcept {
    switch (policy) {
        case OnFailure::error:
            return "error";
        case OnFailure::open:
            return "open";
        case OnFailure::closed:
            return "closed";
        case OnFailure::local:
            return "local";
    }
    return "";
}

/// The callables of a client, at an address that stays.
struct Hooks {
    std::function<void(Level, const char*)> log;
    std::function<void(limiter_permit)> lost;

    static void on_log(void* self, std::int32_t level, const char* message) noexcept {
        static_cast<Hooks*>(self)->log(static_cast<Level>(level), message);
    }

    static void on_lost(void* self, limiter_permit permit) noexcept {
        static_cast<Hooks*>(self)->lost(permit);
    }
};

/// A client's C handle and its callables. Owned by its Client; who may outlive that refers to it
/// weakly, and owns it while a call is inside.
class Core {
public:
    explicit Core(std::shared_ptr<Hooks> hooks) noexcept : hooks_(std::move(hooks)) {}

    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    ~Core() {
        if (limiter_client_free(client_) != LIMITER_OK) {
            // From a callback, or one still runs: its callables must live on.
            (void)new std::shared_ptr<Hooks>(std::move(hooks_));
        }
    }

    limiter_client_t* client() const noexcept { return client_; }

    /// Where limiter_client_open() writes it.
    limiter_client_t** place() noexcept { return &client_; }

    /// Whether `core` still lives, and the operation was not over.
    static bool cancel(const std::weak_ptr<Core>& core, limiter_op operation,
                       std::uint32_t flags) noexcept {
        const std::shared_ptr<Core> here = core.lock();
        return here && limiter_cancel(here->client(), operation, flags) == LIMITER_OK;
    }

private:
    limiter_client_t* client_ = nullptr;
    std::shared_ptr<Hooks> hooks_;
};

struct FreeConfig {
    void operator()(limiter_config_t* config) const noexcept { limiter_config_free(config); }
};

}  // namespace detail

/// Settings of a client before it is made. Move-only; one thread at a time; may be used for several
/// clients. Chains:
///
///     Client client("redis://localhost", Config().prefix("app").on_failure(OnFailure::local));
///
/// Each setter throws error(Status::config), with what is allowed in what(), for a value out of
/// range, and changes nothing then.
class Config {
public:
    /// Everything at its default.
    Config() : raw_(limiter_config_new()) {
        if (!raw_) {
            detail::raise(error(Status::resource, "limiter: settings"));
        }
    }

    /// There are settings: it was not moved from.
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Any setting of limiter.h by its name.
    Config& set(const std::string& key, const std::string& value) {
        detail::Reason reason;
        reason.check(put(key, value, reason), "limiter: setting");
        return *this;
    }

    /// The same with a code.
    Config& set(const std::string& key, const std::string& value, std::error_code& code) noexcept {
        detail::Reason reason;
        detail::report(put(key, value, reason), code);
        return *this;
    }

    /// A clock that stands still until Client::advance(), so that tests need not sleep. On Redis
    /// give it a prefix of its own: nobody else may use its keys.
    Config& virtual_clock() { return set("clock", "virtual"); }

    /// A permit's life unless it is renewed: 100 ms to a day, default 30 s.
    Config& lease(std::chrono::milliseconds lease) { return number("lease_ms", lease.count()); }

    /// Waits under way at most, 1 to 10 000 000, default 100 000; more answer Status::overloaded.
    Config& max_waiting(std::uint32_t waits) { return number("max_waiting", waits); }

    /// The longest Limiter::penalize(): 1 ms to a day, default an hour.
    Config& max_penalty(std::chrono::milliseconds most) {
        return number("max_penalty_ms", most.count());
    }

    /// What Redis keys begin with, up to 256 bytes, default "limiter".
    Config& prefix(const std::string& prefix) { return set("prefix", prefix); }

    /// The longest wait for one answer of Redis: 1 ms to 60 s, default 250 ms.
    Config& command_timeout(std::chrono::milliseconds most) {
        return number("command_timeout_ms", most.count());
    }

    /// For how long a denial by rates is repeated without asking Redis, as long as it stands: 0 to 1 s,
    /// default 1 s. What this client does to the key is noticed at once, what others do by then.
    Config& deny_cache(std::chrono::milliseconds most) {
        return number("deny_cache_ms", most.count());
    }

    /// Units of a busy token bucket are taken ahead, to admit calls without asking Redis, and kept for so long
    /// at most: 0 to 1 s, default 0, which is off.
    Config& take_ahead(std::chrono::milliseconds most) {
        return number("take_ahead_ms", most.count());
    }

    /// What to answer when Redis cannot. Default OnFailure::error.
    Config& on_failure(OnFailure policy) {
        return set("on_failure", detail::name_of(policy));
    }

    /// How many processes share the limiters, as long as Redis has not told: what OnFailure::local
    /// divides by until then. 1 to 1 000 000, default 1.
    Config& processes(std::uint32_t count) { return number("processes", count); }

    /// Calls `log(Level, const char* message)` for records up to `level`; an empty function for
    /// none. Called on any thread, on several at once; it must not block, throw or call this
    /// library. The message lives during the call only. Copied, and kept as long as the clients
    /// made with it.
    Config& on_log(Level level, std::function<void(Level, const char*)> log) {
        own_hooks();
        hooks_->log = std::move(log);
        level_ = level;
        return *this;
    }

    /// Calls `lost(limiter_permit)` for each permit whose lease ended while it was held, on the
    /// callback thread; an empty function for none. It must not throw. Kept as long as the clients
    /// made with it.
    Config& on_lost(std::function<void(limiter_permit)> lost) {
        own_hooks();
        hooks_->lost = std::move(lost);
        return *this;
    }

private:
    friend class Client;

    limiter_status put(const std::string& key, const std::string& value,
                       detail::Reason& reason) noexcept {
        if (key.find('\0') != std::string::npos || value.find('\0') != std::string::npos) {
            reason.say("a setting holds a NUL");
            return LIMITER_INVALID;
        }
        return limiter_config_set(raw_.get(), key.c_str(), value.c_str(), reason.buffer(),
                                  detail::Reason::size());
    }

    void own_hooks() {
        if (!raw_) {
            detail::raise(error(Status::invalid, "limiter: settings that were moved from"));
        }
        hooks_ = std::make_shared<detail::Hooks>(*hooks_);
    }

    Config& number(const char* key, std::int64_t value) { return set(key, std::to_string(value)); }

    std::unique_ptr<limiter_config_t, detail::FreeConfig> raw_;
    // Never changed once a client may share it: a setter makes a new one.
    std::shared_ptr<detail::Hooks> hooks_ = std::make_shared<detail::Hooks>();
    Level level_ = Level::none;
};

/// A backend and what runs in the background for it. One for each backend is enough for a program:
/// it is made for many threads. Move-only.
class Client {
public:
    /// A moment on the client's clock.
    using Time = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;

    /// This process's own memory ("memory://"), at the defaults.
    Client() : Client("memory://") {}

    /// Where the state lives: "memory://", or a Redis URL. Never connects and never waits: a
    /// backend that is down shows at the first call. Throws error(Status::config) for a URL that
    /// cannot be used; what() never repeats a password.
    explicit Client(const std::string& url) {
        detail::Reason reason;
        reason.check(open(url, nullptr, reason), "limiter: client");
    }

    /// With settings, copied.
    Client(const std::string& url, const Config& config) {
        detail::Reason reason;
        reason.check(open(url, &config, reason), "limiter: client");
    }

    /// With a code; the client is empty if it is set.
    Client(const std::string& url, std::error_code& code) {
        detail::Reason reason;
        detail::report(open(url, nullptr, reason), code);
    }

    /// With settings and a code.
    Client(const std::string& url, const Config& config, std::error_code& code) {
        detail::Reason reason;
        detail::report(open(url, &config, reason), code);
    }

    Client(Client&&) noexcept = default;

    Client& operator=(Client&& other) noexcept {
        if (this != &other) {
            close();
            core_ = std::move(other.core_);
        }
        return *this;
    }

    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    /// Shuts down for up to a second, if that was not done, and frees. Blocks; in a callback it
    /// frees nothing.
    ~Client() { close(); }

    /// There is a client.
    explicit operator bool() const noexcept { return core_ != nullptr; }

    /// Ends every wait with Status::closed, lets callbacks that are due run, and releases permits
    /// still held, for up to `wait` (Wait::forever(): as long as it takes). Later calls answer
    /// Status::closed. Throws error(Status::timeout) if `wait` did not suffice; closed all the
    /// same. May be repeated. Blocks.
    void shutdown(Wait wait = std::chrono::seconds(1)) const {
        detail::check(limiter_client_shutdown(native_handle(), wait.milliseconds()), "limiter: shutdown");
    }

    /// The same with a code.
    void shutdown(Wait wait, std::error_code& code) const noexcept {
        detail::report(limiter_client_shutdown(native_handle(), wait.milliseconds()), code);
    }

    /// Ends every wait whose request had this tag, with Status::cancelled; calls blocked on other
    /// threads included. 0 is the tag of every request that was given none. Answers how many, or 0
    /// without a client. Never waits.
    std::int32_t cancel_waits(std::uint64_t tag) const noexcept {
        const std::int32_t count = limiter_cancel_waits(native_handle(), tag);
        return count < 0 ? 0 : count;
    }

    /// The counters, read one after another, not at one instant. All 0 without a client.
    Stats stats() const noexcept {
        Stats stats = LIMITER_INIT(limiter_stats);
        (void)limiter_stats_get(native_handle(), &stats);
        return stats;
    }

    /// Virtual clock: lets time pass. What falls due on the way happens in order and at its own
    /// time before this returns; callbacks are started, not awaited. Throws
    /// error(Status::unsupported) on another client, error(Status::invalid) for a negative time.
    void advance(std::chrono::microseconds time) const {
        detail::check(move_clock(time), "limiter: advance the clock");
    }

    /// The same with a code.
    void advance(std::chrono::microseconds time, std::error_code& code) const noexcept {
        detail::report(move_clock(time), code);
    }

    /// Virtual clock: sets it. Backwards is what a clock that steps back does: no time has passed,
    /// and it goes on from there. Throws as advance().
    void set_clock(Time time) const {
        detail::check(put_clock(time), "limiter: set the clock");
    }

    /// The same with a code.
    void set_clock(Time time, std::error_code& code) const noexcept {
        detail::report(put_clock(time), code);
    }

    /// What the client's clock shows.
    Time now() const noexcept {
        return Time(std::chrono::microseconds(
            static_cast<std::chrono::microseconds::rep>(limiter_clock_now_us(native_handle()))));
    }

    /// As C has it; nullptr for an empty client. Still owned here.
    limiter_client_t* native_handle() const noexcept {
        return core_ == nullptr ? nullptr : core_->client();
    }

private:
    friend class Limiter;
    friend class Queue;

    limiter_status open(const std::string& url, const Config* config,
                        detail::Reason& reason) {
        const limiter_status abi = detail::check_abi(reason);
        if (abi != LIMITER_OK) {
            return abi;
        }
        if (url.find('\0') != std::string::npos) {
            reason.say("a URL holds a NUL");
            return LIMITER_INVALID;
        }
        limiter_config_t* settings = nullptr;
        std::shared_ptr<detail::Hooks> hooks;
        if (config != nullptr) {
            if (!*config) {
                reason.say("the settings were moved from");
                return LIMITER_INVALID;
            }
            settings = config->raw_.get();
            hooks = config->hooks_;
            // The C settings point at the callables of this client from here to the end of open().
            limiter_config_set_log(settings, static_cast<std::int32_t>(config->level_),
                                   hooks->log ? &detail::Hooks::on_log : nullptr, hooks.get());
            limiter_config_set_lost(settings, hooks->lost ? &detail::Hooks::on_lost : nullptr,
                                    hooks.get());
        }
        // First what may throw, so that an open client always has an owner.
        const auto core = std::make_shared<detail::Core>(std::move(hooks));
        const limiter_status status = limiter_client_open(
            url.c_str(), settings, core->place(), reason.buffer(), detail::Reason::size());
        if (status == LIMITER_OK) {
            core_ = core;
        }
        return status;
    }

    void close() noexcept {
        // Where another thread is inside a call of an Operation or Queue, it frees what is left.
        if (core_.use_count() > 1) {
            (void)limiter_client_shutdown(core_->client(), 1000);
        }
        core_.reset();
    }

    limiter_status move_clock(std::chrono::microseconds time) const noexcept {
        return time.count() < 0
                   ? LIMITER_INVALID
                   : limiter_clock_advance_us(native_handle(), static_cast<std::uint64_t>(time.count()));
    }

    limiter_status put_clock(Time time) const noexcept {
        const auto since = time.time_since_epoch().count();
        return since < 0 ? LIMITER_INVALID
                         : limiter_clock_set_us(native_handle(), static_cast<std::uint64_t>(since));
    }

    std::shared_ptr<detail::Core> core_;
};

}  // namespace limiter

#endif  // LIMITER_CLIENT_HPP
