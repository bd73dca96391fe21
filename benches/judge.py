"""Was more admitted than the limit allows?"""


def rate(found, per_second):
    """`per_second` saved up and as many a second, over the whole time that the program saw."""
    allowed = int(per_second * (1 + found["seconds"]))
    return {"admitted": found["admitted"], "allowed": allowed, "excess": max(0, found["admitted"] - allowed)}


def at_once(holds, capacity):
    """Spans of time, of all processes by one clock, in which something was held. Each begins after it was
    granted and ends before it is given back, so two that overlap were held at once."""
    events = sorted([(since, 1) for since, _ in holds] + [(until, -1) for _, until in holds])
    now = most = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return {"admitted": most, "allowed": capacity, "excess": max(0, most - capacity)}
