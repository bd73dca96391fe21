"""Writes benches/RESULTS.md out of what was measured, and has the picture drawn."""
import math
import os
import platform
import statistics
import subprocess
import time

import floors
from contestants import HERE, WORK, say, venv
from rows import GROWTH, OPEN, RATE, ROWS


def median(values):
    return statistics.median(values) if values else math.nan


def quartiles(values):
    if len(values) < 3:
        return min(values), max(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def number(value):
    """Three digits, with spaces between thousands."""
    if value is None or math.isnan(value):
        return "–"
    if abs(value) >= 100:
        return f"{round(value, 2 - int(math.log10(abs(value)))):,.0f}".replace(",", " ")
    return f"{value:.3g}"


def spread(values):
    low, high = quartiles(values)
    return f"{number(median(values))} ({number(low)}–{number(high)})"


def duration(us):
    if us == 0:
        return "–"
    for limit, unit, per in ((1, "ns", 1e-3), (1000, "µs", 1), (1e6, "ms", 1e3)):
        if us < limit:
            return f"{number(us / per)} {unit}"
    return f"{number(us / 1e6)} s"


def machine():
    with open("/proc/cpuinfo") as lines:
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?")
    with open("/proc/meminfo") as lines:
        memory = int(next(lines).split()[1]) / 2**20
    cores = len(os.sched_getaffinity(0))
    return f"{cores} × {model}, {memory:.0f} GiB, {platform.system()} {platform.release().split('-')[0]}"


def versions():
    def first(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True).stdout.split("\n")[0]
        except OSError:
            return f"no {command[0]}"
    return ", ".join([first("rustc", "--version").rsplit(" (", 1)[0], first("cc", "--version"),
                      " ".join(first("go", "version").split()[2:3]), f"Node {first('node', '--version')}",
                      f"Python {platform.python_version()}"])


def label(results, entry):
    name, _, work = entry.partition("=")
    more = {"hot:10": " of 10", "hot:64": " of 64", "hot-current": ", one thread"}.get(work, "")
    return results["labels"][name] + more


def table(heads, rows):
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" + "---:|" * (len(heads) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def of(results, row, entry, callers):
    return [run for run in results["runs"]
            if (run["row"], run["contestant"], run["callers"]) == (row.name, entry, callers)]


def measured(results, row):
    heads = ["", "callers", "decisions/s", "p50", "p99", "server CPU each", "script calls each",
             "connections", "client memory"]
    if row.local:
        heads = heads[:3] + ["time each", "p99", "client memory"]
    if row.name == "memory-zipf":
        heads.append("bytes per key")
    if row.name.startswith("once"):
        heads[3] = "all 100"
    rows = []
    for callers in row.callers:
        for entry in row.contestants:
            runs = of(results, row, entry, callers)
            if not runs:
                continue
            values = {key: [run[key] for run in runs] for key in runs[0]}
            middle = {key: median(column) for key, column in values.items() if isinstance(column[0], (int, float))}
            cells = [label(results, entry), str(callers * row.processes), spread(values["rate"]),
                     duration(middle["p50_us"]), duration(middle["p99_us"])]
            if not row.local:
                cells += [duration(middle["server_us"]), number(middle["calls"]), number(middle["connections"])]
            cells.append(f"{middle['client_mib']:.0f} MiB")
            if row.name == "memory-zipf":
                cells.append(number(middle["bytes_per_key"]))
            rows.append(cells)
    return table(heads, rows) if rows else ["(not run)"]


def admissions(results):
    rows, names = [], {row.name: row for row in ROWS}
    for row in names.values():
        for entry in row.contestants:
            found = [each for each in results["admissions"] if (each["row"], each["contestant"]) == (row.name, entry)]
            if not found:
                continue
            worst = max(found, key=lambda each: each["admitted"] / each["allowed"])
            verdict = f"**{worst['excess']} too many**" if worst["excess"] else "held"
            rows.append([label(results, entry), row.title, str(worst["admitted"]), str(worst["allowed"]), verdict])
    return table(["", "row", "admitted", "allowed", ""], rows)


def grow(points):
    """How cost grows with each tenfold, and what that is called."""
    logs = [(math.log10(size), math.log10(max(cost, 1e-9))) for size, cost in points]
    if len(logs) < 2:
        return math.nan, "–"
    x, y = (statistics.fmean(column) for column in zip(*logs))
    slope = sum((a - x) * (b - y) for a, b in logs) / sum((a - x) ** 2 for a, _ in logs)
    factor = 10**slope
    if factor < 1.12:
        return factor, "O(1)"
    return factor, "O(log n)" if factor < 1.5 else f"n^{slope:.2f}"


def growth(results):
    sizes = sorted({point["size"] for point in results["growth"] if point["grows"] != "processes"})
    heads = ["cost of one call against", "in"] + [f"{size:,}".replace(",", " ") for size in sizes]
    rows = []
    for name, title, *_ in GROWTH:
        for where, unit in (("redis", "µs server CPU"), ("memory", "instructions")):
            points = {point["size"]: point["cost"] for point in results["growth"]
                      if (point["grows"], point["where"]) == (name, where)}
            if points:
                factor, verdict = grow(sorted(points.items()))
                rows.append([title, f"{where}, {unit}"] + [number(points.get(size)) for size in sizes]
                            + [f"× {factor:.2f}", verdict])
    yield from table(heads + ["each tenfold", ""], rows)
    points = [point for point in results["growth"] if point["grows"] == "processes"]
    if points:
        yield ""
        yield "Processes that share one key on Redis, with 64 callers each:"
        yield ""
        yield from table(["processes"] + [str(point["size"]) for point in points], [
            ["decisions/s of all"] + [number(point["rate"]) for point in points],
            ["µs server CPU each"] + [number(point["cost"]) for point in points],
            ["decisions per script call"] + [number(1 / max(point["calls"], 1e-9)) for point in points]])
    keys = [point for point in results["growth"] if point["grows"] == "keys" and "bytes" in point]
    if keys:
        yield ""
        yield f"A key of a token bucket takes {number(keys[-1]['bytes'])} bytes of the server's memory."


TEXT = """# Benchmark results

{date}, {machine}; {server}; {versions}.
{rounds} rounds of {seconds:g} s, {took:.0f} minutes. Written by `make bench`; `benches/check` compares it with the floors.{quick}

![decisions per second against callers](decisions.svg)

## What was measured, and how

In each round every contestant runs once, one after another, each in a process of its own against the same
redis-server, which is emptied before. Numbers are medians over the rounds, in brackets the quartiles. Each
caller asks again as soon as it is answered. The limit is a bucket that does not bind ({open} a second), so
that all do the same work: decide and store. Server CPU is user and system time out of `INFO`, divided by
decisions; connections are those made for each process; client memory is the most that was resident. Client
and server share the machine.

Each peer is used as its own documentation shows: redis_rate with its default pool; self-limiters and
redis-rate-limiters with 100 instances where 100 are used at once (ours: one limiter, 100 callers);
rate-limiter-flexible and bottleneck on ioredis (bottleneck keeps to a rate by spacing starts). The floors
are Rust with the redis crate: a short bucket script called by EVALSHA once for each decision, over one
multiplexed connection (on a runtime of several threads, as usual, or of one), over a pool, or through a bare
socket; and a list with a token for each unit, taken with BLPOP over 15 connections in each process.

{lacking}
## Reached or not

{floors}

The floors are those the project set itself; a ratio is the median of the rounds' ratios.
"""


def write(results, folder):
    lacking = "".join(f"- {name}: {why}\n" for name, why in sorted(results["lacking"].items()))
    failures = "".join(f"- {failure}\n" for failure in dict.fromkeys(results["failures"]))
    parts = [TEXT.format(
        date=time.strftime("%Y-%m-%d", time.gmtime(results["began"])), machine=machine(), server=results["server"],
        versions=versions(), rounds=results["rounds"], seconds=results["seconds"], took=results["took"] / 60,
        quick="\n\n**A quick run: rounds too few and too short to rely on.**" if results["quick"] else "",
        open=number(OPEN), lacking=f"Left out:\n\n{lacking}" if lacking else "",
        floors="\n".join(table(["work", "floor", "measured", ""], floors.rows(results))))]
    if failures:
        parts.append(f"Runs that ended without an answer:\n\n{failures}")
    for row in ROWS:
        parts.append(f"## {row.title}\n\n" + "\n".join(measured(results, row)) + "\n")
    parts.append(f"## Does anyone admit more than the limit allows?\n\nWith {RATE} saved up and {RATE} a second, "
                 "the allowed is that over the whole time the program saw; with a semaphore of 5, the most that "
                 "were held at one moment by all processes together. The worst of the rounds.\n\n"
                 + "\n".join(admissions(results)) + "\n")
    if results["growth"]:
        parts.append("## Cost against growth\n\nCalls one at a time, when so many are there already: CPU time of "
                     "the server, or instructions of ours (counted by callgrind, so a busy machine does not "
                     "matter). The factor is that of a straight line through the logarithms; up to 1.12 counts "
                     "as O(1), up to 1.5 as O(log n).\n\n" + "\n".join(growth(results)) + "\n")
    (folder / "RESULTS.md").write_text("\n".join(parts))
    try:
        subprocess.run([venv(), HERE / "plot.py", WORK / "results.json", folder / "decisions.svg"], check=True)
    except (subprocess.CalledProcessError, OSError) as error:
        say(f"decisions.svg was not drawn: {error}")
