// Runs the recorded answers of tests/conformance/vectors.json: `vectors <file>`. Weights there may be
// halves, so every weight, capacity and rate is doubled.
#include <limiter.hpp>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace {

using namespace std::chrono_literals;
using limiter::Limit;
using limiter::Wait;
using std::chrono::microseconds;
using Json = nlohmann::json;

std::uint64_t doubled(const Json& value) {
    return static_cast<std::uint64_t>(std::llround(value.get<double>() * 2));
}

microseconds time_of(const Json& step) {
    const double us = step.contains("t_ms") ? step["t_ms"].get<double>() * 1e3
                                            : step.at("t_s").get<double>() * 1e6;
    return microseconds(std::llround(us));
}

struct World {
    World() : client("memory://", limiter::Config().virtual_clock()), start(client.now()) {}

    void go_to(microseconds time) const { client.set_clock(start + time); }

    limiter::Client client;
    limiter::Client::Time start;
};

Limit pacer_of(const Json& vector, const Json& step) {
    // Units per 1000 s, so that half a unit per second is a whole number too.
    const double rate = step.value("rate_per_s", vector["rate_per_s"].get<double>());
    const double permille = vector["burst_earn_factor"].get<double>() * 1000;
    return Limit::pacer(static_cast<std::uint64_t>(std::llround(rate * 2000)), 1000s,
                        doubled(vector["burst"]))
        .burst_earn_permille(static_cast<std::uint32_t>(std::llround(permille)));
}

std::string pacer(const Json& vector, const Json& step, const World& world,
                  limiter::Limiter& limiter, std::uint32_t version) {
    if (step.contains("rate_per_s") || !limiter) {
        limiter = limiter::Limiter(world.client, "pacer", {pacer_of(vector, step).version(version)});
    }
    world.go_to(time_of(step));
    const limiter::Request request("", doubled(step["weight"]));
    std::error_code code;
    const limiter::Decision got =
        step["op"] == "pace" ? limiter.pace(request, Wait::forever(), code).decision()
                             : limiter.attempt(request).decision();
    const double delay = static_cast<double>(got.retry_after().count()) / 1e3;
    const double wanted = step["delay_ms"].get<double>();
    const bool near = std::abs(delay - wanted) <= vector["tolerance_ms"].get<double>();
    const bool refused = got.status() == limiter::Status::denied;
    const bool right = step["op"] == "pace" ? got.ok() : got.ok() || refused;
    return near && right ? "" : std::string(limiter::name(got.status())) + " " + std::to_string(delay);
}

std::string allowed(const Json& step, const World& world, const limiter::Limiter& limiter) {
    world.go_to(time_of(step));
    const limiter::Permit got = limiter.attempt({"", doubled(step["weight"])});
    return got.decision().ok() == step["allowed"].get<bool>()
               ? ""
               : limiter::name(got.decision().status());
}

std::string wakes(const Json& step, const World& world, const limiter::Limiter& limiter) {
    world.go_to(time_of(step));
    const microseconds delay = limiter.pace({"", 2}).delay();
    return time_of(step) + delay == microseconds(step["wake_ms"].get<int>() * 1000)
               ? ""
               : std::to_string(delay.count()) + " us";
}

std::string run_step(const std::string& group, const Json& vector, const Json& step,
                     const World& world, limiter::Limiter& limiter, std::uint32_t version) {
    if (group == "pacer") {
        return pacer(vector, step, world, limiter, version);
    }
    if (!limiter) {
        const auto seconds = [&vector](const char* name) {
            return microseconds(std::llround(vector[name].get<double>() * 1e6));
        };
        const Limit limit =
            group == "token_bucket"
                ? Limit::token_bucket(doubled(vector["capacity"]), doubled(vector["rate_per_s"]), 1s)
            : group == "sliding_log"
                ? Limit::sliding_log(doubled(vector["limit"]), seconds("window_s"))
                : Limit::token_bucket(doubled(vector["capacity"]), doubled(vector["refill"]),
                                      seconds("period_s"))
                      .interval()
                      .start_empty();
        limiter = limiter::Limiter(world.client, group, {limit});
    }
    return step.contains("wake_ms") ? wakes(step, world, limiter) : allowed(step, world, limiter);
}

bool run(const std::string& group, const Json& vector) {
    const World world;
    limiter::Limiter limiter;
    std::uint32_t version = 0;
    for (const Json& step : vector["steps"]) {
        std::string wrong;
        try {
            wrong = run_step(group, vector, step, world, limiter, version++);
        } catch (const std::exception& failure) {
            wrong = failure.what();
        }
        if (!wrong.empty()) {
            std::printf("FAILED %s: %s\n    step %u: %s\n    got %s\n", group.c_str(),
                        vector["name"].get<std::string>().c_str(), version, step.dump().c_str(),
                        wrong.c_str());
            return false;
        }
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: vectors <file>\n");
        return 2;
    }
    std::ifstream file(argv[1]);
    int passed = 0;
    int failed = 0;
    const Json all = Json::parse(file);
    for (const auto& [group, vectors] : all.items()) {
        for (const Json& vector : vectors) {
            run(group, vector) ? ++passed : ++failed;
        }
    }
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}
