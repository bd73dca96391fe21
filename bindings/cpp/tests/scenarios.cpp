// Runs tests/scenarios/scenarios.json through the C++ binding: `scenarios <file> [part of a name]`.
// What the file may hold is told in the README beside it.
#include <limiter.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

namespace {

using limiter::Decision;
using limiter::Limit;
using limiter::Permit;
using limiter::Request;
using limiter::Wait;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Json = nlohmann::json;

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::uint64_t number(const Json& from, const char* name, std::uint64_t otherwise = 0) {
    return from.value(name, otherwise);
}

microseconds micros(const Json& value) { return microseconds(value.get<microseconds::rep>()); }

Limit limit_of(const Json& json) {
    const std::string kind = json.at("kind");
    const std::uint64_t capacity = number(json, "capacity");
    const std::uint64_t refill = number(json, "refill");
    const microseconds period(json.value("period_us", microseconds::rep{0}));
    Limit limit = Limit::never();
    if (kind == "semaphore") {
        limit = Limit::semaphore(capacity);
        if (json.contains("refill") || json.contains("period_us")) {  // no factory takes these
            limiter_limit raw = limit.raw();
            raw.refill = refill;
            raw.period_us = number(json, "period_us");
            limit = Limit(raw);
        }
    } else if (kind == "token_bucket") {
        limit = Limit::token_bucket(capacity, refill, period);
    } else if (kind == "pacer") {
        limit = Limit::pacer(refill, period, capacity);
    } else if (kind == "sliding_log") {
        limit = Limit::sliding_log(capacity, period);
    } else if (kind == "sliding_counter") {
        limit = Limit::sliding_counter(capacity, period);
    } else if (kind == "fixed_window") {
        limit = Limit::fixed_window(capacity, period);
    } else if (kind == "unlimited") {
        limit = Limit::unlimited();
    } else if (kind != "never") {
        throw Failure("no such kind: " + kind);
    }
    for (const std::string flag : json.value("flags", Json::array())) {
        limit = flag == "per_call"          ? limit.per_call()
                : flag == "interval"        ? limit.interval()
                : flag == "start_empty"     ? limit.start_empty()
                : flag == "align_first_use" ? limit.align_first_use()
                : flag == "no_renew"        ? limit.no_renew()
                                            : throw Failure("no such flag: " + flag);
    }
    if (json.contains("lease_ms")) {
        limit = limit.lease(milliseconds(json["lease_ms"].get<int>()));
    }
    if (json.contains("burst_earn_permille")) {
        limit = limit.burst_earn_permille(json["burst_earn_permille"]);
    }
    return json.contains("version") ? limit.version(json["version"]) : limit;
}

std::vector<Limit> limits_of(const Json& json) {
    std::vector<Limit> limits;
    for (const Json& each : json) {
        limits.push_back(limit_of(each));
    }
    return limits;
}

/// One scenario on its way.
class Run {
public:
    explicit Run(const Json& scenario) : name_(scenario.at("name")), client_(open(scenario)) {
        queue_ = limiter::Queue(client_);
        if (scenario.contains("limits")) {
            limiter_ = limiter::Limiter(client_, name_, limits_of(scenario["limits"]));
        }
    }

    void step(const Json& json) {
        take(json);
        settle();
    }

    void take(const Json& json) {
        if (json.contains("advance_us")) {
            client_.advance(micros(json["advance_us"]));
        } else if (json.contains("step_back_us")) {
            client_.set_clock(client_.now() - micros(json["step_back_us"]));
        } else if (json.contains("submit")) {
            submit(json);
        } else if (json.contains("cancel")) {
            cancel(json);
        } else if (json.contains("completes")) {
            completes(json);
        } else if (json.contains("pending")) {
            drain();
            const std::string who = json["pending"];
            require(completed_.count(who) == 0, who + " is completed");
        } else {
            operation(json);
        }
    }

    /// After the last step.
    void finish() {
        drain();
        for (const auto& [who, permit] : completed_) {
            throw Failure("nobody asked for the completion of " + who);
        }
    }

private:
    static limiter::Client open(const Json& scenario) {
        limiter::Config config;
        const Json settings = scenario.value("config", Json::object());
        for (const auto& [key, value] : settings.items()) {
            config.set(key, value);
        }
        if (scenario.contains("backend")) {
            require(scenario["backend"] == "none", "only the backend none is known");
            return limiter::Client("redis://127.0.0.1:1", config);
        }
        require(scenario.at("clock") == "virtual", "only the virtual clock is known");
        config.virtual_clock();
        if (remote() == nullptr) {
            return limiter::Client("memory://", config);
        }
        static int opened = 0;
        config.prefix("cpp:" + std::to_string(::getpid()) + ":" + std::to_string(++opened));
        config.command_timeout(std::chrono::seconds(20));
        return limiter::Client(remote(), config);
    }

    /// The Redis to run on, or null: in memory.
    static const char* remote() { return std::getenv("LIMITER_TEST_URL"); }

    /// Lets everything happen that is under way on Redis.
    void settle() {
        if (remote() != nullptr) {
            std::error_code code;
            client_.advance(std::chrono::microseconds(0), code);
        }
    }

    static void require(bool holds, const std::string& what) {
        if (!holds) {
            throw Failure(what);
        }
    }

    static Wait wait_of(const Json& json) {
        const std::int64_t ms = json.value("wait_ms", std::int64_t{0});
        return ms < 0 ? Wait::forever() : Wait(milliseconds(ms));
    }

    /// The request's key stays in `json`.
    static Request request_of(const Json& json) {
        Request request;
        if (json.contains("key")) {
            request.key(json["key"].get_ref<const std::string&>());
        }
        request.weight(number(json, "weight", 1));
        if (json.contains("weights")) {
            request.weights(json["weights"].get<std::vector<std::uint64_t>>());
        }
        if (json.contains("lease_ms")) {
            request.lease(milliseconds(json["lease_ms"].get<int>()));
        }
        for (const std::string flag : json.value("flags", Json::array())) {
            require(flag == "no_renew", "no such flag: " + flag);
            request.no_renew();
        }
        return request;
    }

    void expect(const Decision& got, const Json& step) {
        expect_these(got, step.value("expect", Json::object()));
    }

    void expect_status(limiter::Status got, const Json& wanted) {
        const std::string status = "LIMITER_" + wanted.value("status", std::string("OK"));
        require(status == limiter::name(got), std::string(limiter::name(got)) + " is not " + status);
    }

    void expect_these(const Decision& got, const Json& wanted) {
        expect_status(got.status(), wanted);
        for (const auto& [field, value] : wanted.items()) {
            if (field == "status") {
                continue;
            }
            if (field == "permit") {
                require((got.permit_id() != 0) == value.get<bool>(), "permit");
            } else if (field == "degraded") {
                require(got.degraded() == value.get<bool>(), "degraded");
            } else if (field == "fence_after") {
                require(got.fence() > fences_.at(value), "the fence does not grow");
            } else {
                const std::uint64_t number = field_of(got, field);
                require(number == value.get<std::uint64_t>(),
                        field + ": " + std::to_string(number) + " is not " + value.dump());
            }
        }
    }

    static std::uint64_t field_of(const Decision& decision, const std::string& field) {
        const auto us = [](microseconds time) { return static_cast<std::uint64_t>(time.count()); };
        if (field == "limit") return decision.limit();
        if (field == "remaining") return decision.remaining();
        if (field == "retry_after_us") return us(decision.retry_after());
        if (field == "reset_after_us") return us(decision.reset_after());
        if (field == "waited_us") return us(decision.waited());
        if (field == "index") return decision.index().value_or(UINT32_MAX);
        if (field == "queue_position") return decision.queue_position();
        throw Failure("no such field: " + field);
    }

    static std::uint64_t stat_of(const limiter::Stats& stats, const std::string& field) {
        if (field == "in_flight") return stats.in_flight;
        if (field == "waiting") return stats.waiting;
        if (field == "granted") return stats.granted;
        if (field == "denied") return stats.denied;
        if (field == "never") return stats.never;
        if (field == "cancelled") return stats.cancelled;
        if (field == "released") return stats.released;
        if (field == "settled") return stats.settled;
        if (field == "lost") return stats.lost;
        if (field == "overloaded") return stats.overloaded;
        if (field == "degraded") return stats.degraded;
        throw Failure("no such counter: " + field);
    }

    /// Remembers what a step was given, under its name or none. A released permit stays as a number, so
    /// that a second release reaches the library.
    void keep(Permit permit, const std::string& name) {
        if (!name.empty()) {
            fences_[name] = permit.decision().fence();
            numbers_[name] = permit.id();
        }
        (void)permit.detach();
    }

    void submit(const Json& json) {
        Permit permit = queue_.submit(limiter_, request_of(json), wait_of(json));
        if (remote() != nullptr && permit.decision().status() == limiter::Status::pending) {
            // Redis never answers at once: what was decided at once comes by the queue.
            settle();
            std::vector<Permit> done = queue_.poll(Wait::none(), 1);
            if (!done.empty()) {
                permit = std::move(done[0]);
            }
        }
        expect(permit.decision(), json);
        operations_[json["submit"]] = permit.decision().operation();
        if (permit) {
            keep(std::move(permit), json["submit"]);
        }
    }

    void cancel(const Json& json) {
        const limiter_op op = operations_.at(json["cancel"]);
        const bool done = json.value("detach", false) ? queue_.detach(op) : queue_.cancel(op);
        expect_status(done ? limiter::Status::ok : limiter::Status::stale,
                      json.value("expect", Json::object()));
    }

    void drain() {
        settle();
        std::error_code code;
        for (Permit& permit : queue_.poll(Wait::none(), 64, code)) {
            for (const auto& [name, op] : operations_) {
                if (op == permit.decision().operation()) {
                    completed_.emplace(name, std::move(permit));
                    break;
                }
            }
        }
    }

    void completes(const Json& json) {
        drain();
        const auto found = completed_.find(json["completes"]);
        require(found != completed_.end(), "no completion has arrived");
        Permit permit = std::move(found->second);
        completed_.erase(found);
        const Decision decision = permit.decision();
        keep(std::move(permit), json["completes"]);
        expect(decision, json);
    }

    void operation(const Json& json) {
        const std::string op = json.at("op");
        const Json wanted = json.value("expect", Json::object());
        const std::string key = json.value("key", std::string());
        std::error_code code;
        if (op == "try" || op == "acquire") {
            Permit permit = limiter_.attempt(request_of(json), wait_of(json));
            const Decision decision = permit.decision();
            keep(std::move(permit), json.value("as", std::string()));
            expect(decision, json);
        } else if (op == "pace") {
            const limiter::Booking booking = limiter_.pace(request_of(json), wait_of(json), code);
            if (json.contains("as")) {
                numbers_[json["as"]] = booking.decision().permit_id();
            }
            expect(booking.decision(), json);
        } else if (op == "peek") {
            expect(limiter_.peek(request_of(json)), json);
        } else if (op == "try_many") {
            try_many(json);
        } else if (op == "open") {
            limiter::Limiter made(client_, name_, limits_of(json["limits"]), code);
            if (made) {
                limiter_ = std::move(made);
            }
            expect_status(static_cast<limiter::Status>(code.value()), wanted);
        } else if (op == "stats") {
            for (const auto& [field, value] : wanted.items()) {
                const std::uint64_t number = stat_of(client_.stats(), field);
                require(number == value.get<std::uint64_t>(),
                        field + ": " + std::to_string(number) + " is not " + value.dump());
            }
        } else {
            on_permit_or_key(op, json, key, code);
            expect_status(static_cast<limiter::Status>(code.value()), wanted);
        }
    }

    void on_permit_or_key(const std::string& op, const Json& json, const std::string& key,
                          std::error_code& code) {
        if (op == "reset") {
            limiter_.reset(key, code);
        } else if (op == "penalize") {
            limiter_.penalize(key, micros(json["retry_after_us"]), code);
        } else if (op == "shutdown") {
            client_.shutdown(std::chrono::seconds(1), code);
        } else {
            Permit permit = limiter_.adopt(numbers_.at(json.at("permit")));
            if (op == "release") {
                permit.release(code);
            } else if (op == "settle") {
                permit.settle(json.at("actual"), code);
            } else if (op == "renew" && json.contains("lease_ms")) {
                permit.renew(milliseconds(json["lease_ms"].get<int>()), code);
            } else if (op == "renew") {
                permit.renew(code);
            } else {
                throw Failure("no such step: " + op);
            }
            (void)permit.detach();
        }
    }

    void try_many(const Json& json) {
        std::vector<Request> requests;
        for (const Json& each : json.at("requests")) {
            requests.push_back(request_of(each));
        }
        std::vector<Permit> permits = limiter_.try_many(requests);
        require(permits.size() == requests.size(), "as many answers as requests");
        for (std::size_t i = 0; i < permits.size(); ++i) {
            const Decision decision = permits[i].decision();
            keep(std::move(permits[i]), json["requests"][i].value("as", std::string()));
            expect_these(decision, json["expect"].at(i));
        }
    }

    std::string name_;
    limiter::Client client_;
    limiter::Queue queue_;
    limiter::Limiter limiter_;
    std::map<std::string, limiter_permit> numbers_;
    std::map<std::string, std::uint64_t> fences_;
    std::map<std::string, limiter_op> operations_;
    std::map<std::string, Permit> completed_;
};

bool run(const Json& scenario) {
    std::size_t at = 0;
    const Json& steps = scenario["steps"];
    try {
        Run run(scenario);
        for (at = 0; at < steps.size(); ++at) {
            run.step(steps[at]);
        }
        run.finish();
        return true;
    } catch (const std::exception& failure) {
        std::printf("FAILED %s\n    step %zu: %s\n    %s\n", scenario["name"].get<std::string>().c_str(),
                    at, at < steps.size() ? steps[at].dump().c_str() : "the end", failure.what());
        return false;
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: scenarios <file> [part of a name]\n");
        return 2;
    }
    std::ifstream file(argv[1]);
    const Json all = Json::parse(file);
    int passed = 0;
    int failed = 0;
    for (const Json& scenario : all.at("scenarios")) {
        const std::string name = scenario.at("name");
        if (argc < 3 || name.find(argv[2]) != std::string::npos) {
            run(scenario) ? ++passed : ++failed;
        }
    }
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}
