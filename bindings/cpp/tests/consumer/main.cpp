// Two files include the header, so that what it defines must be inline.
#include <limiter.hpp>

int other();

int main() {
    using namespace std::chrono_literals;
    const limiter::Client client;
    const limiter::Limiter one(client, "one", {limiter::Limit::semaphore(1)});
    const limiter::Permit permit = one.acquire("key", 1s);
    return permit && !one.try_acquire("key") ? other() : 1;
}
