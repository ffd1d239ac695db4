"""The process of an inference server that a script starts, measures and stops."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import gpu_memory


class ServerProcess:
    """Answers GET /health when the constructor returns; ends the program where it does not start. In a session of its own, so
    that SIGTERM ends the program as Ctrl-C does: what its `finally` stops would outlive it."""

    def __init__(self, command, url, log, environment=None):
        """environment: beside this program's own."""
        self.url = url
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                                        env=os.environ | (environment or {}))
        end = time.monotonic() + 900
        try:
            while not self.answers():
                if self.process.poll() is not None or time.monotonic() > end:
                    tail = pathlib.Path(log.name).read_text(errors="replace")[-2000:]
                    sys.exit(f"the server did not start: {log.name}, which ends so:\n{tail}")
                time.sleep(1)
        except BaseException:
            self.stop()
            raise

    def answers(self):
        try:
            urllib.request.urlopen(self.url + "/health", timeout=5)
            return True
        except (urllib.error.URLError, OSError):
            return False

    def get(self, target):
        with urllib.request.urlopen(self.url + target, timeout=60) as answer:
            return json.load(answer)

    def post(self, target, body, timeout=120):
        request = urllib.request.Request(self.url + target, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)

    def call(self, target, timeout=300):
        """A route that wants no body; what it answers, as text."""
        request = urllib.request.Request(self.url + target, b"", method="POST")
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.read().decode()

    def processes(self):
        found, group = [], self.process.pid
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.getpgid(int(entry.name)) == group:
                        found.append(entry)
                except OSError:
                    pass
        return found

    def footprint(self):
        """Memory and descriptors of all its processes, what lies in /dev/shm, and what is taken of a GPU."""
        rss = fds = 0
        for entry in self.processes():
            rss += sum(int(line.split()[1]) for line in (entry / "status").read_text().splitlines()
                       if line.startswith("VmRSS"))
            fds += len(list((entry / "fd").iterdir()))
        shm = sorted(path.name for path in pathlib.Path("/dev/shm").iterdir())
        return {"rss_mib": rss / 1024, "descriptors": fds, "shm": shm, "gpu_mib": gpu_memory.used_mib()}

    def ended(self, within_s=30):
        """Whether it has ended of its own, or does so within that time."""
        try:
            self.process.wait(within_s)
            return True
        except subprocess.TimeoutExpired:
            return False

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
