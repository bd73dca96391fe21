"""A redis-server of the benchmark's own, and the few words needed to ask it."""
import socket
import subprocess
import tempfile
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        port = free_port()
        self.url = f"redis://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(port), "--dir", self.folder.name, "--save", "", "--appendonly", "no",
             "--loglevel", "warning"], stdout=subprocess.DEVNULL, start_new_session=True)
        for _ in range(200):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.05)
        else:
            raise SystemExit("redis-server did not start")
        self.reader = self.socket.makefile("rb")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def ask(self, *words):
        self.socket.sendall((" ".join(words) + "\r\n").encode())
        head = self.reader.readline()
        if head[:1] == b"$":
            body = self.reader.read(int(head[1:]) + 2)
            return body[:-2].decode()
        if head[:1] == b"-":
            raise RuntimeError(head.decode())
        return head[1:-2].decode()

    def info(self):
        """Its numbers: CPU in microseconds, script calls, connections made, bytes used."""
        lines = self.ask("INFO", "everything").splitlines()
        found = dict(line.split(":", 1) for line in lines if ":" in line)
        calls = 0
        for name in ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_blpop"):
            if name in found:
                calls += int(found[name].split(",")[0].removeprefix("calls="))
        return {
            "cpu": 1e6 * (float(found["used_cpu_user"]) + float(found["used_cpu_sys"])),
            "calls": calls,
            "connections": int(found["total_connections_received"]),
            "memory": int(found["used_memory"]),
            "version": found["redis_version"],
        }

    def clear(self):
        self.ask("FLUSHALL")
        self.ask("CONFIG", "RESETSTAT")
