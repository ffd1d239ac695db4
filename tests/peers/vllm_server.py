"""A vLLM server of its own for a script: started, asked for greedy tokens and log-probs, measured, stopped."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import vllm_plugin

PROMPTS = [[1, 5, 9, 2, 7, 30, 31, 32], [3, 3, 8, 100, 17, 60], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]]
TOKENS = 12


class Server:
    """Serves `directory` when the constructor returns; ends the program where it does not start."""

    def __init__(self, options, directory, log):
        self.url = f"http://127.0.0.1:{options.port}"
        command = [options.vllm, "serve", str(directory), "--served-model-name", "model", "--host", "127.0.0.1",
                   "--port", str(options.port), "--max-model-len", "128", "--enforce-eager", "--dtype", options.dtype,
                   "--tokenizer", options.tokenizer or options.model, "--gpu-memory-utilization", "0.1",
                   *(vllm_plugin.ARGUMENTS if getattr(options, "plugin", None) else []),
                   *getattr(options, "serve_option", [])]
        self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        end = time.monotonic() + 900
        while True:
            try:
                urllib.request.urlopen(self.url + "/health", timeout=2)
                return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    sys.exit(f"the server did not start: {log.name}")
                time.sleep(1)

    def get(self, target):
        with urllib.request.urlopen(self.url + target, timeout=60) as answer:
            return json.load(answer)

    def complete(self, prompt, timeout=120):
        """The choice of a greedy completion, with the log-probs of the prompt."""
        body = dict(model="model", prompt=prompt, max_tokens=TOKENS, temperature=0, prompt_logprobs=0, logprobs=0,
                    return_token_ids=True, ignore_eos=True)
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return json.load(reply)["choices"][0]

    def ask(self, timeout=120):
        """For each prompt: greedy tokens, and the log-prob of each prompt token after the first."""
        answers = []
        for prompt in PROMPTS:
            choice = self.complete(prompt, timeout)
            logprobs = [entry[str(token)]["logprob"]
                        for token, entry in zip(prompt[1:], choice["prompt_logprobs"][1:])]
            answers.append((choice["token_ids"], logprobs))
        return answers

    def paused(self):
        return self.get("/is_paused")["is_paused"]

    def weight_version(self):
        return self.get("/weight_info")["weight_version"]

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
        """Memory and descriptors of all its processes, and what lies in /dev/shm."""
        rss = fds = 0
        for entry in self.processes():
            rss += sum(int(line.split()[1]) for line in (entry / "status").read_text().splitlines()
                       if line.startswith("VmRSS"))
            fds += len(list((entry / "fd").iterdir()))
        shm = sorted(path.name for path in pathlib.Path("/dev/shm").iterdir())
        return {"rss_mib": rss / 1024, "descriptors": fds, "shm": shm}

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
