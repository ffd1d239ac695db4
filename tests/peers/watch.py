"""A foreign loop writes versions by transformers' save_pretrained, at once and slowly, and rotates them away, while
`tandem-sync push --watch` keeps a real vLLM and a tandem-engine at the newest: vLLM is restarted in the middle, the watch is killed
once. At the end both answer as the newest version, no half one was pushed, and one that is replaced under its name is told.
Exit code 1 when anything is wrong.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import plugin
import tandem_push
import torch
import transformers
from vllm_models import differences, expected, make_models
from vllm_server import Server


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--program", required=True, help="tandem-sync; tandem-engine is beside it")
    parser.add_argument("--tokenizer", required=True, help="directory; whose token ids random models cover")
    parser.add_argument("--versions", type=int, default=50)
    parser.add_argument("--keep", type=int, default=3, help="versions that are not rotated away")
    parser.add_argument("--port", type=int, default=8125)
    plugin.add_options(parser)
    options = parser.parse_args()
    options.family, options.tied, options.dtype, options.models, options.model = "qwen3", False, "float32", 1, None
    options.serve_option = []
    return options


class Loop:
    """Steps of a trainer that knows nothing of the watch."""

    def __init__(self, directory, folder):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        self.folder = folder
        self.generator = torch.Generator().manual_seed(0)

    def step(self):
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=self.generator) * 0.01)

    def save_at_once(self, name):
        self.model.save_pretrained(self.folder / f".{name}")
        (self.folder / f".{name}").rename(self.folder / name)

    def save_slowly(self, name):
        """Shards, then the index, each in pieces."""
        whole = self.folder / f".{name}"
        self.model.save_pretrained(whole, max_shard_size="200KB")
        (self.folder / name).mkdir()
        for file in sorted(whole.iterdir(), key=lambda file: file.name.endswith("index.json")):
            content = file.read_bytes()
            with open(self.folder / name / file.name, "wb") as out:
                for at in range(0, len(content), 65536):
                    out.write(content[at:at + 65536])
                    out.flush()
                    time.sleep(0.01)
        shutil.rmtree(whole)


class Watch:
    def __init__(self, command, log):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.events = []
        self.thread = threading.Thread(target=lambda: self.events.extend(json.loads(line) for line in self.process.stdout))
        self.thread.start()

    def end(self, number):
        self.process.send_signal(number)
        self.process.wait(60)
        self.thread.join()
        return self.process.returncode


def model_info(url):
    return json.load(urllib.request.urlopen(url + "/model_info", timeout=10))


def main():
    options = parsed()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="watch."))
    versions = folder / "versions"
    versions.mkdir()
    (directory, *_), _ = make_models(options, folder)
    plugin.use(options, folder)
    log = open(folder / "log", "w")
    vllm = Server(options, directory, log)
    ready = folder / "engine.url"
    engine = subprocess.Popen([str(pathlib.Path(options.program).with_name("tandem-engine")), "serve", "--model", str(directory),
                               "--listen", "127.0.0.1:0", "--ready-file", str(ready), "--threads", "1"], stdout=log, stderr=log)
    while not ready.exists():
        time.sleep(0.1)
    tandem = ready.read_text().strip()
    command = [options.program, "push", "--watch", str(versions), "--json", "--pattern", "step_*", "--rest", "0.5",
               "--to", vllm.target, "--to", tandem]
    failed = False

    def expect(what, holds):
        nonlocal failed
        print(what + ("" if holds else ": WRONG"), flush=True)
        failed = failed or not holds

    loop, watch = Loop(directory, versions), Watch(command, log)
    events = []
    try:
        for number in range(1, options.versions + 1):
            loop.step()
            name = f"step_{number}"
            loop.save_slowly(name) if number % 3 == 0 else loop.save_at_once(name)
            if number > options.keep:
                shutil.rmtree(versions / f"step_{number - options.keep}")
            time.sleep(0.2)
            if number == options.versions // 3:
                watch.end(signal.SIGKILL)
                events += watch.events
                watch = Watch(command, log)
            if number == options.versions // 2:
                vllm.stop()
                vllm = Server(options, directory, log)
        newest = f"step_{options.versions}"
        end = time.monotonic() + 120
        while time.monotonic() < end and (vllm.weight_version() != str(options.versions)
                                          or model_info(tandem)["weight_version"] != str(options.versions)):
            time.sleep(0.2)
        said = vllm.weight_version(), model_info(tandem)["weight_version"]
        expect(f"versions at the end: {said}", said == (str(options.versions),) * 2)
        wanted = expected(loop.model.eval())
        wrong, most, _ = differences(vllm.ask(), wanted)
        expect(f"vLLM answers as {newest}: {wrong} answers differ, log-probs by {most:.1e}", wrong == 0 and most < 1e-3)
        verified = tandem_push.run(options.program, versions / newest, tandem, "--verify", "--dry-run")
        most = tandem_push.report(verified.stdout)["probe"]["before"]["most"]
        expect(f"the tandem-engine answers as {newest}: log-probs differ by {most:.1e}", most < 1e-3)
        loop.step()
        shutil.rmtree(versions / newest)
        loop.save_at_once(newest)
        time.sleep(3)
        code = watch.end(signal.SIGTERM)
        events += watch.events
        expect(f"the watch ended with {code}", code == 0)
        expect("one that was replaced under its name is told",
               any(event["event"] == "notice" and "replaced under its name" in event["text"] for event in events))
        pushed = [event for event in events if event["event"] == "version"]
        away = [event for event in events if event["event"] == "trouble" and "vllm" in event["url"]]
        expect(f"{len(pushed)} versions pushed; {len(away)} times was vLLM said to be away or restarted", len(away) >= 1)
        known = {server["known"] for event in pushed for server in event["servers"] if server["whole"]}
        print(f"known: {sorted(known)}; troubles: {sorted({e['text'][:90] for e in events if e['event'] == 'trouble'})}")
    finally:
        if watch.process.poll() is None:
            watch.end(signal.SIGKILL)
        engine.terminate()
        vllm.stop()
    staged = [path.name for path in pathlib.Path("/dev/shm").iterdir() if path.name.startswith("tandem-staged")]
    expect(f"left in /dev/shm: {staged}", not staged)
    if failed:
        sys.exit(f"FAILED; logs are in {folder}")
    shutil.rmtree(folder)
    print("ok")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
