// An exception that leaves a callable must end the process by std::terminate, not travel through C.
#include <limiter.hpp>

#include <cstdlib>
#include <thread>

int main() {
    using namespace std::chrono_literals;
    std::set_terminate([] { std::_Exit(42); });
    const limiter::Client client;
    const limiter::Limiter one(client, "one", {limiter::Limit::semaphore(1)});
    (void)one.acquire_async({}, 1s, [](const limiter::Permit&) { throw 7; });
    std::this_thread::sleep_for(10s);
    return 1;
}
