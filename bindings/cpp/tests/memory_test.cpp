// What happens when operator new fails.
#include <limiter.hpp>

#include <cstdlib>
#include <new>

#include "check.hpp"

using namespace std::chrono_literals;

namespace {

// How many news succeed on this thread before one fails; below 0 none does.
thread_local long left = -1;

}  // namespace

void* operator new(std::size_t size) {
    void* const memory = left == 0 ? nullptr : std::malloc(size == 0 ? 1 : size);
    if (left >= 0) {
        --left;
    }
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

TEST("memory that runs out is std::bad_alloc, whichever piece it was, and nothing is left behind") {
    for (long pieces = 0;; ++pieces) {
        left = pieces;
        try {
            std::error_code code;
            const limiter::Client client(
                "memory://", limiter::Config().on_lost([](limiter_permit) {}), code);
            const limiter::Limiter two(client, "two", {limiter::Limit::semaphore(2)}, code);
            const limiter::Queue queue(client, code);
            const auto permits = two.try_many({"a", "a", "a"}, code);
            (void)two.acquire_async("b", 0s, [](limiter::Permit) {}, code);
            const auto polled = queue.poll(limiter::Wait::none(), 1, code);
            left = -1;
            CHECK(!code && permits.size() == 3 && permits[1] && !permits[2] && polled.empty());
            CHECK(pieces > 10);
            return;
        } catch (const std::bad_alloc&) {
            left = -1;
        }
    }
}
