// The smallest useful program: at most two downloads at a time, and at most five starts a second.
#include <limiter.hpp>

#include <iostream>

using namespace std::chrono_literals;
using limiter::Limit;

static void download(const char* what) { std::cout << "downloading " << what << '\n'; }

int main() try {
    limiter::Client client;  // this process's memory; or Client("redis://localhost")
    limiter::Limiter downloads(client, "downloads",
                               {Limit::semaphore(2), Limit::token_bucket(5, 5, 1s)});

    for (const char* file : {"a.iso", "b.iso", "c.iso"}) {
        limiter::Permit permit = downloads.acquire("mirror.example", 10s);
        download(file);
    }  // the permit is released here, whatever happens

    if (auto permit = downloads.try_acquire("mirror.example")) {
        download("d.iso");
    }
} catch (const limiter::error& failure) {
    std::cerr << failure.what() << '\n';
    return 1;
}
