"""The Python peers: ROLE WORK CALLERS SECONDS URL KEY RATE, see benches/README.md."""
import asyncio
import json
import sys
import time


def bucket(role, url, key, capacity, amount, period):
    if role == "self-limiters":
        from self_limiters import TokenBucket
        return TokenBucket(name=key, capacity=capacity, refill_frequency=period, refill_amount=amount,
                           redis_url=url)
    from limiters import AsyncTokenBucket
    return AsyncTokenBucket(connection=connection(url), name=key, capacity=capacity,
                            refill_frequency=period, refill_amount=amount)


def semaphore(role, url, key, capacity):
    if role == "self-limiters":
        from self_limiters import Semaphore
        return Semaphore(name=key, capacity=capacity, redis_url=url)
    from limiters import AsyncSemaphore
    return AsyncSemaphore(connection=connection(url), name=key, capacity=capacity)


connections = {}


def connection(url):
    """One client, with as many connections as it wants: what its README shows."""
    from redis.asyncio import Redis
    if url not in connections:
        connections[url] = Redis.from_url(url)
    return connections[url]


async def use(limit):
    async with limit:
        pass


async def main(role, work, callers, seconds, url, key, rate):
    work, _, size = work.partition(":")
    size, rate, callers, seconds = int(size or 0), int(rate), int(callers), float(seconds)
    tally = {"decisions": 0, "admitted": 0, "seconds": 0.0}
    latencies, holds = [], []

    def count(began):
        tally["decisions"] += 1
        tally["admitted"] += 1
        latencies.append((time.monotonic() - began) * 1e6)

    if work.startswith("at-once"):
        # As many instances as there are callers, all used at the same time.
        end, number = time.monotonic() + seconds, 0
        while number < 2 or time.monotonic() < end:
            name = f"{key}-{number}"
            began = time.monotonic()
            if work == "at-once-semaphore":
                limits = [semaphore(role, url, name, size) for _ in range(callers)]
            else:
                limits = [bucket(role, url, name, size, size, 0.001) for _ in range(callers)]
            await asyncio.gather(*[use(limit) for limit in limits])
            if number == 0:
                tally["warm_up"] = callers
            else:
                count(began)
                tally["seconds"] += time.monotonic() - began
            number += 1
        tally["decisions"] *= callers
        tally["admitted"] *= callers
    else:
        if work in ("semaphore", "judged"):
            limit = semaphore(role, url, key, size)
        elif rate >= 1_000_000:
            limit = bucket(role, url, key, rate, rate // 100, 0.01)
        else:
            limit = bucket(role, url, key, rate, rate, 1.0)
        begin = time.monotonic()
        end = begin + seconds

        async def caller():
            while time.monotonic() < end:
                began = time.monotonic()
                async with limit:
                    count(began)
                    if work == "judged":
                        since = time.monotonic()
                        await asyncio.sleep(0.001)
                        holds.append([round(since * 1e6, 1), round(time.monotonic() * 1e6, 1)])

        tasks = [asyncio.ensure_future(caller()) for _ in range(callers)]
        # Who still sleeps until its turn then is not waited for.
        await asyncio.wait(tasks, timeout=seconds)
        tally["seconds"] = time.monotonic() - begin

    latencies.sort()
    last = max(len(latencies) - 1, 0)
    tally["p50_us"] = latencies[last // 2] if latencies else 0
    tally["p99_us"] = latencies[last * 99 // 100] if latencies else 0
    with open("/proc/self/status") as lines:
        tally["peak_kib"] = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    if work == "judged":
        tally["holds"] = holds
    print(json.dumps(tally), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 8:
        sys.exit("usage: ROLE WORK CALLERS SECONDS URL KEY RATE")
    import os
    asyncio.new_event_loop().run_until_complete(main(*sys.argv[1:]))
    os._exit(0)  # tasks that still sleep are not waited for
