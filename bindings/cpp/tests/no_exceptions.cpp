// Compiled with -fno-exceptions -fno-rtti: the std::error_code overloads do all of it.
#include <limiter.hpp>

#include <cstdio>

using namespace std::chrono_literals;

int main(int argc, char**) {
    std::error_code code;
    const limiter::Client client("memory://", code);
    const limiter::Limiter one(client, "one", {limiter::Limit::semaphore(1)}, code);
    if (code) {
        std::printf("%s\n", code.message().c_str());
        return 1;
    }
    limiter::Permit permit = one.acquire("key", 1s, code);
    if (code || !permit || one.try_acquire("key", code) || code) {
        return 1;
    }
    permit.release(code);
    if (argc > 1) {
        (void)one.acquire({"key", 2});  // would throw: aborts
    }
    return code ? 1 : 0;
}
