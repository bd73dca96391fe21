/// A client on the virtual clock, as most tests want one.
#ifndef WORLD_HPP
#define WORLD_HPP

#include <limiter.hpp>

#include <condition_variable>
#include <deque>
#include <mutex>

struct World {
    limiter::Client client{"memory://", limiter::Config().virtual_clock()};

    limiter::Limiter limiter(std::initializer_list<limiter::Limit> limits) const {
        return limiter::Limiter(client, "test", limits);
    }
};

/// Hands values from the callback thread to the test.
template <class T>
class Mailbox {
public:
    void put(T value) {
        const std::lock_guard<std::mutex> lock(mutex_);
        values_.push_back(std::move(value));
        arrived_.notify_one();
    }

    /// The next value; a minute without one ends the process, as a test that hangs would not.
    T take() {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto any = [this] { return !values_.empty(); };
        if (!arrived_.wait_for(lock, std::chrono::minutes(1), any)) {
            std::terminate();
        }
        T value = std::move(values_.front());
        values_.pop_front();
        return value;
    }

private:
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<T> values_;
};

#endif  // WORLD_HPP
