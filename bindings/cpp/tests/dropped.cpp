// Permits that are dropped where they came from, which gives them back at once: each line that begins
// with "limiter." or "queue." or "permit." must be warned of.
#include <limiter.hpp>

void drop(const limiter::Limiter& limiter, const limiter::Queue& queue, limiter::Permit& permit);

void drop(const limiter::Limiter& limiter, const limiter::Queue& queue, limiter::Permit& permit) {
    std::error_code code;
    limiter.attempt("key");
    limiter.acquire("key");
    limiter.acquire("key", code);
    limiter.acquire("key", limiter::Wait::none(), code);
    limiter.try_acquire("key");
    limiter.try_acquire("key", code);
    limiter.try_acquire("key", limiter::Wait::none(), code);
    limiter.pace("key");
    limiter.pace("key", code);
    limiter.pace("key", limiter::Wait::none(), code);
    limiter.peek("key");
    limiter.try_many({"key"});
    limiter.try_many({"key"}, code);
    limiter.adopt(1);
    queue.submit(limiter);
    queue.poll();
    queue.poll(limiter::Wait::none(), 1, code);
    permit.detach();
}
