// A worker pool: four threads take tasks; a limiter decides how many of them run at once, and how fast
// they start. Each task's real cost is known only afterwards, and is settled then.
#include <limiter.hpp>

#include <atomic>
#include <iostream>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using limiter::Limit;

namespace {

constexpr std::uint64_t estimate = 100;  // what a task is thought to cost

std::atomic<int> next_task{0};
std::atomic<int> running{0};
std::atomic<int> most{0};

/// Does the work and answers what it cost.
std::uint64_t work(int task) {
    int seen = most.load();
    const int now = ++running;
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::sleep_for(5ms);
    --running;
    return 40 + static_cast<std::uint64_t>(task % 3) * 10;
}

void worker(const limiter::Limiter& limits, int tasks) {
    for (int task = next_task++; task < tasks; task = next_task++) {
        std::error_code code;
        limiter::Permit permit = limits.acquire({"model", estimate}, 30s, code);
        if (code == limiter::Condition::refused) {
            std::cerr << "task " << task << ": come back in "
                      << permit.decision().retry_after().count() << " us\n";
            continue;
        }
        if (code) {
            std::cerr << "task " << task << ": " << code.message() << '\n';
            return;
        }
        permit.settle(work(task));
    }
}

}  // namespace

int main() try {
    const limiter::Client client;
    const limiter::Limiter limits(client, "pool",
                                  {
                                      Limit::semaphore(2).per_call(),           // at once
                                      Limit::token_bucket(10, 500, 1s).per_call(),  // starts
                                      Limit::token_bucket(1000, 100000, 1s),    // units
                                  });
    std::vector<std::thread> pool;
    for (int i = 0; i < 4; ++i) {
        pool.emplace_back(worker, std::cref(limits), 40);
    }
    for (std::thread& thread : pool) {
        thread.join();
    }
    const limiter::Stats stats = client.stats();
    std::cout << stats.granted << " tasks, at most " << most << " at once, " << stats.settled
              << " settled\n";
    return stats.granted == 40 && most <= 2 && stats.in_flight == 0 ? 0 : 1;
} catch (const limiter::error& failure) {
    std::cerr << failure.what() << '\n';
    return 1;
}
