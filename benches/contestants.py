"""Who runs, and how each of them is built or installed; what cannot be had is left out and said so."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
WORK = TARGET / "bench"

PYPI = ["self-limiters==0.4.0", "redis-rate-limiters==0.5.0"]
# Wanted as well, and on no registry that was seen to have it.
PYPI_MAYBE = ["volter"]

# name: (label, program, role)
CONTESTANTS = {
    "ours": ("liblimiter", "ours", "async"),
    "ours-threads": ("liblimiter, blocking", "ours", "threads"),
    "ours-at-once": ("liblimiter", "ours", "at-once"),
    "ours-semaphore": ("liblimiter", "ours", "semaphore"),
    "ours-memory": ("liblimiter, C", "ours", "memory"),
    "ours-go": ("liblimiter, Go", "go", "ours"),
    "multiplexed": ("EVALSHA, multiplexed, one thread", "rust", "multiplexed"),
    "multiplexed-threads": ("EVALSHA, multiplexed", "rust", "multiplexed-threads"),
    "pool": ("EVALSHA, pool", "rust", "pool"),
    "block_on": ("EVALSHA, block_on", "rust", "block_on"),
    "socket": ("EVALSHA, raw socket", "rust", "socket"),
    "blpop": ("BLPOP, pool", "rust", "blpop"),
    "governor": ("governor", "rust", "governor"),
    "leaky-bucket": ("leaky-bucket", "rust", "leaky-bucket"),
    "redis_rate": ("redis_rate", "go", "redis_rate"),
    "x/time/rate": ("x/time/rate", "go", "x/time/rate"),
    "rate-limiter-flexible": ("rate-limiter-flexible", "node", "rate-limiter-flexible"),
    "bottleneck": ("bottleneck", "node", "bottleneck"),
    "self-limiters": ("self-limiters", "python", "self-limiters"),
    "redis-rate-limiters": ("redis-rate-limiters", "python", "redis-rate-limiters"),
}


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command, **more):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, **more)


def ours():
    run(["cargo", "build", "-q", "--release", "--lib"], cwd=ROOT)
    program = WORK / "ours"
    run(["cc", "-std=c99", "-O2", "-g", "-Wall", "-Wextra", "-I", ROOT / "include", "-o", program,
         *sorted((HERE / "ours").glob("*.c")), TARGET / "release/liblimiter.a", "-pthread", "-ldl", "-lm"])
    return [program], {}


def rust():
    run(["cargo", "build", "-q", "--release", "--locked"], cwd=HERE / "rust",
        env={**os.environ, "CARGO_TARGET_DIR": str(WORK / "rust")})
    return [WORK / "rust/release/bench-peers"], {}


def go():
    abi = next(line.split()[2] for line in (ROOT / "include/limiter.h").read_text().splitlines()
               if line.startswith("#define LIMITER_ABI "))
    lib = WORK / "lib"
    lib.mkdir(exist_ok=True)
    for name, to in (("liblimiter.so", TARGET / "release/liblimiter.so"), (f"liblimiter.so.{abi}", "liblimiter.so")):
        (lib / name).unlink(missing_ok=True)
        (lib / name).symlink_to(to)
    (lib / "limiter.pc").write_text(f"Name: limiter\nDescription: not installed\nVersion: 0\n"
                                    f"Cflags: -I{ROOT}/include\nLibs: -L{lib} -llimiter\n")
    run(["go", "build", "-o", WORK / "go-peers", "."], cwd=HERE / "go",
        env={**os.environ, "PKG_CONFIG_PATH": str(lib)})
    return [WORK / "go-peers"], {"LD_LIBRARY_PATH": str(lib)}


def node():
    folder = WORK / "node"
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / "node" / name, folder / name)
    if not (folder / "node_modules/ioredis").exists():
        run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder)
    return ["node", HERE / "node/peers.js"], {"NODE_PATH": str(folder / "node_modules")}


def venv():
    python = WORK / "venv/bin/python"
    if not python.exists():
        run([sys.executable, "-m", "venv", WORK / "venv"])
    return python


def pip(*packages):
    run([venv(), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages])


def python():
    try:
        run([venv(), "-c", "import self_limiters, limiters, matplotlib"])
    except subprocess.CalledProcessError:
        pip(*PYPI)
        pip("matplotlib")
    return [venv(), HERE / "python/peers.py"], {}


def unavailable():
    """Peers that the registry does not have."""
    lacking = {}
    for package in PYPI_MAYBE:
        try:
            run([venv(), "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check", "-d",
                 WORK / "maybe", package])
            lacking[package] = "is on PyPI by now, and has no program here yet"
        except (subprocess.CalledProcessError, OSError):
            lacking[package] = "cannot be installed: PyPI has no such package here"
    return lacking


def prepare():
    """Commands by what is needed, their environments, and why some are missing."""
    WORK.mkdir(parents=True, exist_ok=True)
    commands, lacking = {}, {}
    for make in (ours, rust, go, node, python):
        name = make.__name__
        say(f"preparing: {name}")
        try:
            commands[name] = make()
        except (subprocess.CalledProcessError, OSError) as error:
            if name == "ours":
                raise SystemExit(f"the library or its program does not build:\n{getattr(error, 'stderr', error)}")
            detail = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            for label, needs, _ in CONTESTANTS.values():
                if needs == name:
                    lacking[label] = f"cannot be built or installed: {detail[-1] if detail else error}"
            say(f"  left out: {detail[-1] if detail else error}")
    lacking.update(unavailable())
    return commands, lacking
