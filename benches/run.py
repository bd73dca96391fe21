"""The benchmark: `make bench`, or `make bench QUICK=1`. Runs ours and theirs in turn, in the same minutes, on
a redis-server of its own; writes benches/RESULTS.md and benches/decisions.svg, and what check reads. Options
for development: ROWS=name,name (also: growth), BENCH_SECONDS=, ROUNDS=.
"""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import contestants
import judge
import report
from contestants import CONTESTANTS, HERE, WORK, say
from rows import GROWTH, OPEN, PROCESSES, RATE, ROWS
from server import Server

QUICK = bool(os.environ.get("QUICK"))
SECONDS = float(os.environ.get("BENCH_SECONDS", 0.25 if QUICK else 1.0))
ROUNDS = int(os.environ.get("ROUNDS", 3 if QUICK else 9))
JUDGED_ROUNDS = 1 if QUICK else 3
ONLY = [name for name in os.environ.get("ROWS", "").split(",") if name]
# What a program is given to finish beyond its time.
GRACE = 60
# What a step of growth is given, filling included.
LONGEST = 120


def finish(process, longest, line=None):
    """What it said on both streams."""
    alarm = threading.Timer(longest, process.kill)
    alarm.start()
    try:
        out, _ = process.communicate(line)
    except BrokenPipeError:
        out = ""
    alarm.cancel()
    with process.errors:
        process.errors.seek(0)
        return out, process.errors.read()


class Bench:
    def __init__(self, commands, server):
        self.commands, self.server = commands, server
        self.failures = []

    def start(self, name, work, callers, seconds, url, key, rate):
        _, needs, role = CONTESTANTS[name]
        command, environment = self.commands[needs]
        argv = [*command, role, work, callers, seconds, url, key, rate]
        errors = tempfile.TemporaryFile("w+")
        process = subprocess.Popen([str(word) for word in argv], env={**os.environ, **environment}, text=True,
                                   stdout=subprocess.PIPE, stderr=errors)
        process.errors = errors
        return process

    def run(self, name, work, callers, seconds, rate, processes=1, local=False):
        """Runs a contestant; the sum of its processes, with what the server says. None if it failed."""
        server = self.server
        url = "memory://" if local else server.url
        server.clear()
        before = server.info()
        began = time.monotonic()
        running = [self.start(name, work, callers, seconds, url, "key", rate) for _ in range(processes)]
        answers = []
        for process in running:
            out, err = finish(process, seconds + GRACE)
            try:
                answers.append(json.loads(out.splitlines()[-1]))
            except (ValueError, IndexError):
                self.failures.append(f"{CONTESTANTS[name][0]}, {work}, {callers} callers: "
                                     f"{(err.strip().splitlines() or ['no answer'])[-1]}")
                say(f"    {self.failures[-1]}")
                return None
        after = server.info()
        decisions = sum(answer["decisions"] for answer in answers)
        each = max(decisions + sum(answer.get("warm_up", 0) for answer in answers), 1)
        elapsed = max(answer["seconds"] for answer in answers) or time.monotonic() - began
        return {
            "decisions": decisions,
            "admitted": sum(answer["admitted"] for answer in answers),
            "seconds": elapsed,
            "rate": decisions / elapsed,
            "p50_us": sum(answer["p50_us"] for answer in answers) / len(answers),
            "p99_us": max(answer["p99_us"] for answer in answers),
            "bytes_per_key": answers[0].get("bytes_per_key", 0),
            "server_us": (after["cpu"] - before["cpu"]) / each,
            "calls": (after["calls"] - before["calls"]) / each,
            "connections": (after["connections"] - before["connections"]) / processes,
            "client_mib": max(answer["peak_kib"] for answer in answers) / 1024,
            "holds": [hold for answer in answers for hold in answer.get("holds", [])],
        }

    def available(self, row):
        for entry in row.contestants:
            name, _, work = entry.partition("=")
            if CONTESTANTS[name][1] in self.commands:
                yield entry, name, work or row.work

    def round(self, number):
        """Each contestant of each row once, so that all meet the same weather."""
        for row in ROWS:
            if ONLY and row.name not in ONLY:
                continue
            say(f"round {number + 1} of {ROUNDS}: {row.title}")
            for callers in row.callers:
                if QUICK and callers not in (1, 64, 512, row.callers[-1]):
                    continue
                for entry, name, work in self.available(row):
                    found = self.run(name, work, callers, SECONDS, row.rate, row.processes, row.local)
                    if found:
                        yield {"row": row.name, "contestant": entry, "callers": callers, "round": number, **found}

    def judged(self, number):
        """Each contestant under a limit that binds: does it admit more than that allows?"""
        for row in ROWS:
            if not row.judged or ONLY and row.name not in ONLY:
                continue
            say(f"admissions, round {number + 1}: {row.title}")
            for entry, name, work in self.available(row):
                if row.judged == "semaphore":
                    found = self.run(name, "judged:5", 25, 0.5, OPEN, row.processes)
                    verdict = found and judge.at_once(found["holds"], 5)
                else:
                    callers = min(row.callers[-1], 64)
                    found = self.run(name, work, callers, 1.0, RATE, row.processes, row.local)
                    verdict = found and judge.rate(found, RATE)
                if verdict:
                    yield {"row": row.name, "contestant": entry, "round": number, **verdict}

    def grown(self, work, size, calls, local):
        """What one call costs when so much is there: the server's CPU, or our instructions."""
        server = self.server
        server.clear()
        empty = server.info()["memory"]
        command, _ = self.commands["ours"]
        argv = [*command, "growth", work.format(size), calls, 0, "memory://" if local else server.url, "key", OPEN]
        argv = [str(word) for word in argv]
        counts = WORK / "callgrind.out"
        if local:
            argv = ["valgrind", "--tool=callgrind", "--toggle-collect=counted", f"--callgrind-out-file={counts}"] + argv
        errors = tempfile.TemporaryFile("w+")
        process = subprocess.Popen(argv, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        process.errors = errors
        alarm = threading.Timer(LONGEST, process.kill)
        alarm.start()
        ready = process.stdout.readline()
        before = server.info()
        _, said = finish(process, LONGEST, "\n")
        alarm.cancel()
        after = server.info()
        if ready != "ready\n" or process.returncode != 0:
            self.failures.append(f"growth, {work.format(size)} in {'memory' if local else 'Redis'}: "
                                 f"{(said.strip().splitlines() or [f'not done in {LONGEST} s'])[-1]}")
            say(f"    {self.failures[-1]}")
            return None
        if local:
            total = next(line for line in counts.read_text().splitlines() if line.startswith("totals:"))
            return {"cost": int(total.split()[1]) / calls}
        return {"cost": (after["cpu"] - before["cpu"]) / calls, "bytes": (before["memory"] - empty) / size}

    def growth(self):
        if ONLY and "growth" not in ONLY:
            return
        most = 1000 if QUICK else 10**9
        for name, title, work, sizes, _redis, _memory in GROWTH:
            for size in sizes:
                if size > most:
                    continue
                say(f"growth: {size} {title}")
                for local in (False, True):
                    calls = 500 if local else 2000
                    found = self.grown(work, size, calls, local)
                    if found:
                        yield {"grows": name, "size": size, "where": "memory" if local else "redis", **found}
        for count in PROCESSES:
            if QUICK and count > 4:
                continue
            say(f"growth: {count} processes")
            found = self.run("ours", "hot", 64, SECONDS, OPEN, processes=count)
            if found:
                yield {"grows": "processes", "size": count, "where": "redis", "cost": found["server_us"],
                       "rate": found["rate"], "calls": found["calls"]}


def main():
    began = time.time()
    commands, lacking = contestants.prepare()
    results = {"lacking": lacking, "quick": QUICK, "rounds": ROUNDS, "seconds": SECONDS, "began": began,
               "labels": {name: entry[0] for name, entry in CONTESTANTS.items()},
               "runs": [], "admissions": [], "growth": []}
    prepared = time.time()
    with Server() as server:
        bench = Bench(commands, server)
        results["server"] = f"Redis {server.info()['version']}"
        for number in range(ROUNDS):
            results["runs"] += bench.round(number)
            if number < JUDGED_ROUNDS:
                results["admissions"] += bench.judged(number)
        results["growth"] += bench.growth()
        results["failures"] = bench.failures
    for run in results["runs"]:
        del run["holds"]
    results["took"] = time.time() - prepared
    (WORK / "results.json").write_text(json.dumps(results))
    # A part of the rows is for whoever works on them.
    folder = WORK if ONLY else HERE
    report.write(results, folder)
    ours = [entry for entry in results["admissions"]
            if entry["contestant"].startswith("ours") and entry["excess"] > 0]
    for entry in ours:
        say(f"FAILED: we admit more than the limit allows: {entry}")
    broken = [failure for failure in bench.failures if failure.startswith("liblimiter")]
    for failure in broken:
        say(f"FAILED: {failure}")
    say(f"{folder}/RESULTS.md is written; benches/check compares it with the floors ({results['took']:.0f} s)")
    sys.exit(1 if ours or broken else 0)


if __name__ == "__main__":
    main()
