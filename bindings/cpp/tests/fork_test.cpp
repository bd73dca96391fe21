// Objects in a forked child: usable, and the parent's permits left alone.
#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"
#include "world.hpp"

using namespace std::chrono_literals;
using limiter::Limit;
using limiter::Limiter;
using limiter::Permit;
using limiter::Status;

namespace {

/// The exit code of a child that runs `body`.
template <class Body>
int in_child(Body body) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(body());
    }
    int status = -1;
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

TEST("a forked child has its own memory, and the parent's permits are not its own") {
    const World world;
    const Limiter one = world.limiter({Limit::semaphore(1)});
    Permit permit = one.acquire();
    const int child = in_child([&one, &permit] {
        std::error_code code;
        permit.renew(code);
        if (code != Status::forked) return 1;
        const Permit own = one.acquire({}, 1s, code);
        if (code || !own) return 2;
        if (one.try_acquire()) return 3;
        permit = Permit();  // disturbs nobody
        return 0;
    });
    CHECK_EQ(child, 0);
    CHECK(!one.try_acquire());
    permit.release();
    CHECK(one.try_acquire().has_value());
}

TEST("a queue and callables work in a forked child") {
    const limiter::Client client;
    const Limiter one(client, "one", {Limit::semaphore(1)});
    const limiter::Queue queue(client);
    const int number = queue.descriptor();
    const int child = in_child([&] {
        Mailbox<int> box;
        (void)queue.poll();
        if (queue.descriptor() != number) return 1;
        Permit first = one.acquire();
        if (!queue.submit(one).decision().pending()) return 2;
        first.release();
        if (queue.poll(10s).size() != 1) return 3;
        (void)one.acquire_async({}, 10s, [&box](const Permit& permit) { box.put(permit ? 1 : 0); });
        return box.take() == 1 ? 0 : 4;
    });
    CHECK_EQ(child, 0);
    CHECK(queue.poll().empty());
    CHECK(one.try_acquire().has_value());
}
