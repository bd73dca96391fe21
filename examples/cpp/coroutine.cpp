// C++20: `Permit permit = co_await acquire(limiter, "key", 5s);`
#include <limiter.hpp>

#include <coroutine>
#include <future>
#include <iostream>
#include <utility>

using namespace std::chrono_literals;
using limiter::Limit;
using limiter::Permit;

/// Suspends until the answer is there. The coroutine goes on on the library's callback thread: hand over
/// to your executor before doing anything long.
class Acquire {
public:
    Acquire(const limiter::Limiter& from, limiter::Request what, limiter::Wait wait)
        : limiter_(from), request_(what), wait_(wait) {}

    bool await_ready() const noexcept { return false; }

    void await_suspend(std::coroutine_handle<> waiting) {
        // This object lives in the suspended coroutine until resume().
        (void)limiter_.acquire_async(request_, wait_, [this, waiting](Permit permit) {
            permit_ = std::move(permit);
            waiting.resume();
        });
    }

    Permit await_resume() noexcept { return std::move(permit_); }

private:
    const limiter::Limiter& limiter_;
    limiter::Request request_;
    limiter::Wait wait_;
    Permit permit_;
};

/// A coroutine that starts at once and that nobody waits for.
struct Task {
    struct promise_type {
        Task get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
};

static Task job(const limiter::Limiter& one, int number, std::promise<int>& done) {
    {
        const Permit permit = co_await Acquire(one, "key", 5s);
        if (!permit) {
            std::cerr << permit.decision().code().message() << '\n';
        }
    }
    done.set_value(number);
}

int main() {
    const limiter::Client client;
    const limiter::Limiter one(client, "jobs", {Limit::semaphore(1)});
    Permit held = one.acquire("key");
    std::promise<int> first;
    std::promise<int> second;
    job(one, 1, first);
    job(one, 2, second);
    held.release();
    const int sum = first.get_future().get() + second.get_future().get();
    client.shutdown();
    std::cout << "both jobs ran\n";
    return sum == 3 && client.stats().granted == 3 ? 0 : 1;
}
