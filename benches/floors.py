"""The floors: ratios between contestants of one run, and whether they were reached."""
import statistics


def pairs(results, row, ours, theirs, value, callers=None):
    """Ours by theirs, round for round."""
    def by_round(name):
        return {run["round"]: run[value] for run in results["runs"]
                if run["row"] == row and run["contestant"] == name and callers in (None, run["callers"])}
    mine, other = by_round(ours), by_round(theirs)
    return [mine[number] / other[number] for number in mine if other.get(number)]


def alone(results, row, ours, value):
    return [run[value] for run in results["runs"] if run["row"] == row and run["contestant"] == ours]


# (row, what, ours, theirs, value, callers, at least?, floor, unit); theirs None: the value by itself. Where
# there are several of theirs, the best of them counts.
MULTIPLEXED = ["multiplexed", "multiplexed-threads"]
POOLS = ["pool=hot:10", "pool=hot:64"]
FASTER = "times faster than self-limiters"
FLOORS = [
    ("hot", "hot key, 64 callers, decisions/s by the better multiplexed", "ours", MULTIPLEXED, "rate", 64, True, 12),
    ("hot", "hot key, 512 callers, the same", "ours", MULTIPLEXED, "rate", 512, True, 35),
    ("hot", "hot key, 1 caller, the same", "ours", MULTIPLEXED, "rate", 1, True, 0.95),
    ("threads", "64 blocking threads, decisions/s by the better pool", "ours-threads", POOLS, "rate", 64, True, 4),
    ("threads", "64 blocking threads, p50 by the better pool's", "ours-threads", POOLS, "p50_us", 64, False, 0.25),
    ("zipf", "10 000 keys, 512 callers, decisions/s by the better multiplexed", "ours", MULTIPLEXED, "rate", 512,
     True, 4.5),
    ("hot", "server CPU of redis_rate by ours, in batches of 64 (512 callers)", "redis_rate", ["ours"],
     "server_us", 512, True, 60),
    ("one", "one blocking call, p50 by block_on", "ours-threads", ["block_on"], "p50_us", 1, False, 0.65),
    ("one", "one blocking call, p50 by a raw socket (stretch)", "ours-threads", ["socket"], "p50_us", 1, False, 1.1),
    ("once-1", f"100 at once, semaphore of 1, {FASTER}", "ours-at-once", ["self-limiters"], "rate", 100, True, 7),
    ("once-5", f"100 at once, semaphore of 5, {FASTER}", "ours-at-once", ["self-limiters"], "rate", 100, True, 25),
    ("once-bucket", f"100 at once, bucket, {FASTER}", "ours-at-once", ["self-limiters"], "rate", 100, True, 25),
    ("hand-off", "semaphore, 4 processes, 1000 waiters, hand-offs/s by BLPOP", "ours-semaphore", ["blpop"], "rate",
     250, True, 4),
    ("hand-off", "the same, connections for each process", "ours-semaphore", None, "connections", 250, False, 2),
    ("memory", "memory, one key, time by governor", "ours-memory", ["governor"], "p50_us", 1, False, 1.5),
    ("memory", "memory, one key through cgo, time by x/time/rate", "ours-go", ["x/time/rate"], "p50_us", 1, False, 1),
    ("memory-zipf", "memory, 1 000 000 keys, time by governor's keyed", "ours-memory", ["governor"], "p50_us", 1,
     False, 0.5),
    ("memory-zipf", "memory, 1 000 000 keys, bytes per key by governor's", "ours-memory", ["governor"],
     "bytes_per_key", 1, False, 0.5),
    ("denied", "denied again before retry_after, µs", "ours-memory", None, "p50_us", 1, False, 0.1),
    ("denied", "denied again, script calls for each", "ours-memory", None, "calls", 1, False, 0.001),
    ("ahead", "units taken ahead, one thread, decisions/s by one call per decision", "ours-memory", ["block_on=hot"],
     "rate", 1, True, 500),
]


def measure(results, floor):
    row, _what, ours, theirs, value, callers, at_least, _limit = floor
    if theirs is None:
        found = alone(results, row, ours, value)
        return statistics.median(found) if found else None
    ratios = [statistics.median(found) for name in theirs
              if (found := pairs(results, row, ours, name, value, callers))]
    if not ratios:
        return None
    return min(ratios) if at_least else max(ratios)


def rows(results):
    for floor in FLOORS:
        found, limit, at_least = measure(results, floor), floor[-1], floor[-2]
        bound = f"{'≥' if at_least else '≤'} {limit:g}"
        if found is None:
            yield [floor[1], bound, "–", "not measured"]
        else:
            reached = found >= limit if at_least else found <= limit
            yield [floor[1], bound, f"{found:.3g}", "reached" if reached else "**not reached**"]
