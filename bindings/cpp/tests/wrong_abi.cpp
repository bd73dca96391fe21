// Run with another library's limiter_abi_version() loaded before ours: a client is refused, and says why.
#include <limiter.hpp>

#include <iostream>

int main() {
    std::error_code code;
    const limiter::Client none("memory://", code);
    if (none || code != limiter::Status::unsupported) {
        std::cout << "it is taken\n";
        return 1;
    }
    try {
        const limiter::Client client;
    } catch (const limiter::error& failure) {
        std::cout << failure.what() << '\n';
        return failure.status() == limiter::Status::unsupported ? 0 : 1;
    }
    return 1;
}
