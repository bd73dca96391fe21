"""Draws decisions per second against callers: plot.py RESULTS.json OUT.svg. Runs in the benchmark's venv."""
import json
import statistics
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "limiter"  # the same picture of the same numbers
import matplotlib.pyplot as plt  # noqa: E402

# Without red, which is ours.
COLOURS = ["blue", "orange", "green", "purple", "brown", "pink", "gray", "olive", "cyan"]

results = json.load(open(sys.argv[1]))
lines = {}
for run in results["runs"]:
    if run["row"] == "hot":
        lines.setdefault(run["contestant"], {}).setdefault(run["callers"], []).append(run["rate"])
if not lines:
    sys.exit("that row was not run")
figure, axes = plt.subplots(figsize=(9.5, 5), layout="constrained")
axes.set_prop_cycle(color=[f"tab:{name}" for name in COLOURS])
last = lambda item: -statistics.median(item[1][max(item[1])])  # noqa: E731
for name, points in sorted(lines.items(), key=last):
    # Who answered nothing in that time has no place on a logarithmic axis.
    callers = sorted(count for count in points if min(points[count]) > 0)
    middle = [statistics.median(points[count]) for count in callers]
    low = [min(points[count]) for count in callers]
    high = [max(points[count]) for count in callers]
    ours = name == "ours"
    drawn, = axes.plot(callers, middle, marker="o", linewidth=3 if ours else 1.5, markersize=6 if ours else 4,
                       linestyle="--" if name.startswith("multiplexed") else "-", color="#c0392b" if ours else None,
                       label=results["labels"][name])
    axes.fill_between(callers, low, high, color=drawn.get_color(), alpha=0.12, linewidth=0)
axes.set_xscale("log", base=2)
axes.set_yscale("log")
counts = sorted({count for points in lines.values() for count in points})
axes.set_xticks(counts, [str(count) for count in counts])
axes.set_xlabel("callers that ask about one key at the same time")
axes.set_ylabel("decisions per second")
axes.grid(True, which="major", alpha=0.3)
figure.legend(loc="outside right upper", fontsize=9, frameon=False)
axes.set_title("One key on Redis: median and range of the rounds", fontsize=11)
figure.savefig(sys.argv[2], metadata={"Date": None})
