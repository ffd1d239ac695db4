"""Pushes by `tandem-sync push` into one server of others, and what the server must say after each."""
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time
import urllib.error

import torch
import transformers

import tandem_push
from vllm_models import differences, expected_of_mixture, make_models
from vllm_server import PROMPTS


def add_options(parser):
    parser.add_argument("--program", required=True, help="tandem-sync")
    parser.add_argument("--model", help="directory; without, random models are made")
    parser.add_argument("--shapes", help="directory with a config.json, of whose shapes random models are")
    parser.add_argument("--family", choices=["llama", "qwen2", "qwen3"], default="qwen3")
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--models", type=int, default=3, help="how many different weights are pushed in turn")
    parser.add_argument("--pushes", type=int, default=6)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--traffic", action="store_true")
    parser.add_argument("--serve-option", action="append", default=[], help="passed on to every server")
    parser.add_argument("--only", help="pattern: push weights 0, then of weights 1 these tensors alone")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of kills")
    parser.add_argument("--push-option", action="append", default=[], help="passed on to every push")


def save_random(config, directory):
    """Random weights of a config.json's contents, as a directory."""
    config = transformers.AutoConfig.for_model(**config)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(directory)


class Run:
    """`Server` is a class like vllm_server's; `scheme` how tandem-sync names its servers, and `way` what follows its URL."""

    def __init__(self, options, folder, Server, scheme, way=""):
        self.Server, self.scheme, self.way = Server, scheme, way
        self.always = []  # options that no push may lack
        self.options, self.folder, self.failed = options, folder, False
        self.directories, self.transformers = make_models(options, folder)
        self.wanted, self.tolerance = self.transformers, 1e-3
        self.version = 0
        self.paused_ms = []
        self.pusher_mib = 0
        self.log = open(folder / "server.log", "w")

    def wrong(self, what):
        print(what + ": WRONG", flush=True)
        self.failed = True

    def compare_with_servers(self):
        """Takes what a server says that was started on each directory for what a push of it must give."""
        self.wanted, self.tolerance = [], 1e-6
        for which, directory in enumerate(self.directories):
            server = self.Server(self.options, directory, self.log)
            try:
                self.wanted.append(server.ask())
                again = server.ask()
            finally:
                server.stop()
            tokens, most, mean = differences(self.wanted[-1], self.transformers[which])
            print(f"started on weights {which}: {tokens} of {len(PROMPTS)} greedy answers differ from transformers', "
                  f"log-probs by {most:.2e} at most, {mean:.2e} in the mean; asked twice by "
                  f"{differences(self.wanted[-1], again)[1]:.2e}", flush=True)

    def check(self, step, which):
        tokens, most, mean = differences(self.server.ask(), self.wanted[which])
        text = (f"{step}: {tokens} of {len(PROMPTS)} greedy answers differ, log-probs by {most:.2e} at most, "
                f"{mean:.2e} in the mean")
        if tokens > 0 or most > self.tolerance:
            self.wrong(text)
        else:
            print(text, flush=True)

    def start_push(self, which, more=None):
        self.out, self.err = (open(self.folder / name, "w+") for name in ("push.out", "push.err"))
        return subprocess.Popen(
            tandem_push.command(self.options.program, self.directories[which],
                                self.server.url.replace("http", self.scheme) + self.way, *self.always,
                                *(self.options.push_option if more is None else more)),
            stdout=self.out, stderr=self.err)

    def wait(self, pusher):
        """Its exit code; how much memory it took at most, in MiB, in self.pusher_mib."""
        # Not from rusage: that counts this program's memory, which the pusher had until its exec.
        while pusher.poll() is None:
            status = pathlib.Path(f"/proc/{pusher.pid}/status").read_text()
            peak = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
            self.pusher_mib = peak[0] / 1024 if peak else self.pusher_mib
            time.sleep(0.002)
        for file in (self.out, self.err):
            file.seek(0)
        return pusher.returncode

    def push(self, which, more=None):
        """A push that must succeed; returns its report."""
        code = self.wait(self.start_push(which, more))
        out, err = self.out.read(), self.err.read()
        if code != 0:
            raise SystemExit(f"a push failed with exit code {code}:\n{out}{err}")
        report = tandem_push.report(out)
        says = self.server.weight_version()
        if says != str(report["version"]) or report["version"] <= self.version:
            self.wrong(f"after version {self.version} the report says {report['version']} and the server {says}")
        self.version = report["version"]
        return report

    def pushes(self):
        tenth = None
        for number in range(1, self.options.pushes + 1):
            which = number % self.options.models
            report = self.push(which)
            self.paused_ms.append(report["paused_ms"])
            if "probe" in report:
                print(f"push {number}: probe {report['probe']}", flush=True)
            if number <= 6 or number % 10 == 0:
                self.check(f"push {number} to {self.scheme}, weights {which}, version {self.version}, "
                           f"{report['bytes'] / 1048576:.1f} MiB, paused {report['paused_ms']:.0f} ms", which)
            if number % 10 == 0:
                last = dict(self.server.footprint(), pusher_mib=self.pusher_mib)
                print(f"after push {number}: {last}", flush=True)
                tenth = tenth or last
        if self.paused_ms:
            print(f"paused ms: median {sorted(self.paused_ms)[len(self.paused_ms) // 2]:.1f}, "
                  f"least {min(self.paused_ms):.1f}, most {max(self.paused_ms):.1f}")
        if tenth and self.options.pushes > 10:
            grown = (last["rss_mib"] > 1.02 * tenth["rss_mib"] or last["pusher_mib"] > 1.02 * tenth["pusher_mib"]
                     or last["descriptors"] > tenth["descriptors"] or last["shm"] != tenth["shm"]
                     or last["gpu_mib"] > tenth["gpu_mib"])
            text = f"since the tenth push: {tenth} → {last}"
            self.wrong("grown " + text) if grown else print("not grown " + text)

    def part(self):
        """Some tensors alone, beside those that are there."""
        self.wanted.append(expected_of_mixture(*self.directories[:2], self.options.only))
        self.push(0)
        report = self.push(1, ["--only", self.options.only])
        self.check(f"{self.options.only} alone, {report['bytes'] / 1048576:.1f} MiB; far from the weights before by "
                   f"{differences(self.wanted[-1], self.wanted[0])[1]:.1e}", len(self.wanted) - 1)

    def kills(self):
        """Kills pushers; what each leaves must be one of the two versions, or a server that does not answer."""
        moments = random.Random(self.options.seed)
        longest = pause = 0
        for _ in range(3):
            start = time.monotonic()
            pause = max(pause, self.push(0, [])["paused_ms"] / 1000)
            longest = max(longest, 1.1 * (time.monotonic() - start))
        outcomes = {"old weights": 0, "new weights": 0, "paused": 0}
        for number in range(1, self.options.kills + 1):
            old, new = (number - 1) % self.options.models, number % self.options.models
            pusher = self.start_push(new, [])
            if number % 2:
                time.sleep(moments.uniform(0, longest))
            else:  # inside its pause
                while pusher.poll() is None and not self.server.paused():
                    pass
                time.sleep(moments.uniform(0, 0.5 * pause))
            pusher.kill()
            self.wait(pusher)
            left = self.left_behind(old, new)
            outcomes[left] = outcomes.get(left, 0) + 1
            if left not in ("old weights", "new weights", "paused"):
                self.wrong(f"kill {number} left {left}")
            self.version = 0  # that of the killed push may be there or not
            self.push(new, [])
            self.check(f"kill {number} left {left}; the next push", new)
        print(f"{self.options.kills} kills within {longest:.2f} s left: {outcomes}")
        staged = [path.name for path in pathlib.Path("/dev/shm").iterdir() if path.name.startswith("tandem-staged")]
        if staged:
            self.wrong(f"left in /dev/shm: {staged}")

    def left_behind(self, old, new):
        try:
            if self.server.paused():
                return "paused"
            found = self.server.ask(timeout=15)
        except OSError as error:  # its pause may still have been on its way
            return "paused" if self.server.paused() else f"no answer: {error}"
        for name, which in (("old weights", old), ("new weights", new)):
            tokens, most, _ = differences(found, self.wanted[which])
            if tokens == 0 and most <= self.tolerance:
                return name
        return f"a mixture: {[differences(found, wanted) for wanted in self.wanted]}"

    def failures(self):
        """What must go wrong, for servers that have such a thing."""

    def plugin_failures(self):
        """A worker of the plug-in fails before and inside its load; the next push heals either."""
        self.push(0)
        for where in ("before", "inside"):
            version = self.server.weight_version()
            (self.folder / "fault").write_text(where)
            code = self.wait(self.start_push(1))
            said = self.err.read() + self.out.read()
            if code != 1 or (self.folder / "fault").exists():
                self.wrong(f"a failure {where} the load: exit code {code}: {said}")
            if where == "before":
                if self.server.paused() or self.server.weight_version() != version:
                    self.wrong(f"a failure before the load left version {self.server.weight_version()}, "
                               f"paused: {self.server.paused()}: {said}")
                else:
                    self.check("after a failure before the load, the old weights", 0)
            elif not self.server.paused() or not self.server.weight_version().startswith("loading"):
                self.wrong(f"a failure inside the load left version {self.server.weight_version()}, "
                           f"paused: {self.server.paused()}")
            for which in (1, 2 % self.options.models, 0):
                self.push(which)
                self.check(f"after a failure {where} the load, a push", which)

    def all(self):
        """Everything that the options ask for; ends the program with exit code 1 where something is wrong."""
        print("weights 0 and 1 are apart by:", differences(self.wanted[0], self.wanted[1]))
        if self.options.dtype == "bfloat16":
            self.compare_with_servers()
        self.server = self.Server(self.options, self.directories[0], self.log)
        traffic = None
        try:
            self.check("as served", 0)
            traffic = Traffic(self) if self.options.traffic else None
            self.pushes()
            if self.options.only:
                self.part()
            if self.options.kills:
                self.kills()
            self.failures()
        finally:
            if traffic:
                traffic.stop()
            self.server.stop()
        if self.failed:
            sys.exit(f"FAILED; the server's log is {self.folder / 'server.log'}")
        shutil.rmtree(self.folder)
        print("ok")


class Traffic:
    """A client that completes one prompt after the other: each answer must be one of a whole version's. What a pause refuses
    (503: vLLM since 0.33, where earlier ones answer when it ends) is asked for again."""

    def __init__(self, run):
        self.run, self.answers, self.aborted, self.refused, self.mixed, self.failures = run, 0, 0, 0, [], []
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        while not self.end.is_set():
            prompt = self.answers % len(PROMPTS)
            try:
                choice = self.run.server.complete(PROMPTS[prompt], timeout=600)
            except urllib.error.HTTPError as error:
                if error.code == 503 and b"Generation is paused" in error.read():
                    self.refused += 1
                    self.end.wait(0.02)
                else:
                    self.failures.append(str(error))
                continue
            except OSError as error:
                self.failures.append(str(error))
                continue
            self.answers += 1
            tokens = choice["token_ids"]
            if choice.get("aborted"):  # by a push, and the client is told
                self.aborted += 1
            elif tokens not in [wanted[prompt][0] for wanted in self.run.wanted]:
                self.mixed.append((prompt, tokens))

    def stop(self):
        self.end.set()
        self.thread.join()
        print(f"traffic: {self.answers} answers, {self.aborted} aborted, {self.refused} refused by pauses, "
              f"{len(self.mixed)} of no whole version, {len(self.failures)} failed")
        if self.mixed or self.failures or self.answers == 0:
            self.run.wrong(f"traffic: {self.mixed[:3]} {self.failures[:3]}")
