// An event loop: hundreds of waits on one thread. The queue's descriptor is readable when some of them
// are answered; here poll(2) stands for the loop.
#include <limiter.hpp>
#include <poll.h>

#include <iostream>

using namespace std::chrono_literals;
using limiter::Limit;
using limiter::Permit;
using limiter::Request;

int main() try {
    const limiter::Client client;
    const limiter::Limiter paced(client, "requests", {Limit::token_bucket(10, 1000, 1s)});
    const limiter::Queue queue(client);
    int answered = 0;
    const auto done = [&answered](const Permit& permit) {
        if (!permit) {
            std::cerr << permit.decision().tag() << ": " << permit.decision().code().message() << '\n';
        }
        ++answered;
    };

    for (std::uint64_t number = 0; number < 200; ++number) {
        const Permit now = queue.submit(paced, Request("host").tag(number), 5s);
        if (!now.decision().pending()) {
            done(now);
        }
    }
    std::cout << answered << " at once\n";
    while (answered < 200) {
        pollfd readable{queue.descriptor(), POLLIN, 0};
        if (poll(&readable, 1, 5000) <= 0) {
            return 1;
        }
        for (const Permit& permit : queue.poll()) {
            done(permit);
        }
    }
    std::cout << answered << " in all\n";
    return client.stats().granted == 200 ? 0 : 1;
} catch (const limiter::error& failure) {
    std::cerr << failure.what() << '\n';
    return 1;
}
