// Tests of your own code need not sleep: on a virtual clock an hour passes when you say so.
#include <limiter.hpp>

#include <iostream>

using namespace std::chrono_literals;
using limiter::Limit;

/// The code under test: one newsletter an hour for each reader.
class Newsletter {
public:
    explicit Newsletter(const limiter::Client& client)
        : hourly_(client, "newsletter", {Limit::sliding_log(1, 1h)}) {}

    bool send(const std::string& reader) const { return hourly_.attempt(reader).decision().ok(); }

private:
    limiter::Limiter hourly_;
};

int main() {
    const limiter::Client client("memory://", limiter::Config().virtual_clock());
    const Newsletter newsletter(client);
    bool right = newsletter.send("ann") && newsletter.send("bob") && !newsletter.send("ann");
    client.advance(1h - 1us);
    right = right && !newsletter.send("ann");
    client.advance(1us);
    right = right && newsletter.send("ann");
    std::cout << (right ? "right\n" : "wrong\n");
    return right ? 0 : 1;
}
