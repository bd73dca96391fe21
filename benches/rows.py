"""What is measured: rows of contestants that do the same work, and growth."""

OPEN = 100_000_000  # a rate that never binds
RATE = 200  # one that does: 200 a second, 200 saved up


class Row:
    def __init__(self, name, title, work, contestants, callers=(1,), rate=OPEN, processes=1, judged=None,
                 local=False):
        self.name, self.title, self.work, self.contestants = name, title, work, contestants
        self.callers, self.rate, self.processes, self.judged = callers, rate, processes, judged
        # In the process's own memory: no server is looked at.
        self.local = local


# A contestant is a name of contestants.py, with a work of its own after "=" where it needs one.
ROWS = [
    Row("hot", "Redis, one key, callers that do not block", "hot",
        ["ours", "multiplexed", "multiplexed-threads", "redis_rate", "rate-limiter-flexible", "bottleneck",
         "self-limiters", "redis-rate-limiters"], callers=(1, 8, 64, 512), judged="rate"),
    Row("threads", "Redis, one key, 64 blocking threads", "hot",
        ["ours-threads", "pool=hot:10", "pool=hot:64", "redis_rate"], callers=(64,), judged="rate"),
    Row("zipf", "Redis, 10 000 keys (Zipf 1.0), 512 callers that do not block", "zipf:10000",
        ["ours", "multiplexed", "multiplexed-threads"], callers=(512,)),
    Row("one", "Redis, one blocking caller", "hot",
        ["ours-threads", "block_on", "block_on=hot-current", "socket"]),
    Row("once-1", "Redis, semaphore of 1, 100 instances at once", "at-once-semaphore:1",
        ["ours-at-once", "self-limiters", "redis-rate-limiters"], callers=(100,)),
    Row("once-5", "Redis, semaphore of 5, 100 instances at once", "at-once-semaphore:5",
        ["ours-at-once", "self-limiters", "redis-rate-limiters"], callers=(100,)),
    Row("once-bucket", "Redis, bucket of 100 a millisecond with wake-up, 100 instances at once",
        "at-once-bucket:100", ["ours-at-once", "self-limiters", "redis-rate-limiters"], callers=(100,)),
    Row("hand-off", "Redis, semaphore of 5, 1000 waiters in 4 processes", "semaphore:5",
        ["ours-semaphore", "blpop", "self-limiters"], callers=(250,), processes=4, judged="semaphore"),
    Row("denied", "Redis, denied again before retry_after", "denied", ["ours-memory"]),
    Row("ahead", "Redis, one key, one thread, units taken ahead", "ahead",
        ["ours-memory", "block_on=hot"], judged="rate"),
    Row("memory", "In memory, one key", "memory",
        ["ours-memory", "ours-go", "governor", "x/time/rate", "leaky-bucket", "rate-limiter-flexible",
         "bottleneck"], callers=(1, 2), judged="rate", local=True),
    Row("memory-zipf", "In memory, 1 000 000 keys (Zipf 1.0)", "memory-zipf:1000000",
        ["ours-memory", "governor"], local=True),
]

# What grows: (name, title, work, sizes, calls counted, on Redis, in memory)
GROWTH = [
    ("keys", "keys of a token bucket", "keys:{}", (10, 100, 1000, 10_000, 100_000, 1_000_000), True, True),
    ("waiters", "waits for a semaphore of 1, each hand-off", "waiters:{}", (1, 10, 100, 1000, 10_000, 100_000),
     True, True),
    ("log", "entries of a sliding log", "log:{}", (10, 100, 1000, 10_000, 100_000), True, True),
]
PROCESSES = (1, 2, 4, 8, 16)
