"""Pushes different weights of one architecture into a real SGLang, in turn, by `tandem-sync push`.

What the server then says is compared with transformers on the weights that were pushed, and its version with the one
that was asked for; push_run.py says what else is looked at. With --failures the server is also pushed weights that it
cannot see, and weights that do not fit what it holds; where it runs our plug-in, a load fails before and inside. Exit
code 1 when anything differs.
"""
import argparse
import itertools
import json
import os
import pathlib
import shutil
import tempfile

import plugin
import push_run
from sglang_server import Server


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    push_run.add_options(parser)
    parser.add_argument("--python", required=True, help="of an environment with SGLang")
    parser.add_argument("--scheme", choices=["sglang", "sglang+tensor", "both", "sglang+ipc"], default="both",
                        help="by a directory, by tensors, or by either in turn; or by checkpoint-engine's protocol")
    parser.add_argument("--checkpoint-engine", type=pathlib.Path,
                        help="for sglang+ipc: an unpacked wheel; --program has emulated GPUs, the server a stand-in for CUDA")
    parser.add_argument("--server", help="its options, instead of those for a CPU")
    parser.add_argument("--failures", action="store_true")
    plugin.add_options(parser)
    parser.add_argument("--port", type=int, default=30123)
    return parser.parse_args()


class Run(push_run.Run):
    def __init__(self, options, folder):
        if options.scheme == "sglang+ipc":
            stub = pathlib.Path(__file__).parent.resolve() / "checkpoint_engine_stub"
            os.environ |= {"PYTHONPATH": f"{stub}:{os.environ.get('PYTHONPATH', '')}", "TANDEM_EMULATED_GPUS": "1",
                           "CHECKPOINT_ENGINE_WHEEL": str(options.checkpoint_engine.resolve())}
        super().__init__(options, folder, Server, None, plugin.use(options, folder))
        both = options.scheme == "both" and not options.plugin
        self.schemes = itertools.cycle(["sglang", "sglang+tensor"] if both else [options.scheme.replace("both", "sglang")])

    def start_push(self, which, more=None):
        self.scheme = next(self.schemes)
        self.always = ["--abort-running"] if self.scheme in ("sglang+tensor", "sglang+ipc") else []
        return super().start_push(which, more)

    def refused(self, step, directory=None):
        """A push that must fail; what tandem-sync says."""
        if directory:
            self.directories.append(directory)
        pusher = self.start_push(-1 if directory else 1)
        code = self.wait(pusher)
        said = self.out.read() + self.err.read()
        if directory:
            self.directories.pop()
        print(f"{step}: exit code {code}: {said.strip()}", flush=True)
        if code != 1:
            self.wrong(f"{step}: exit code {code}")

    def failures(self):
        if not self.options.failures:
            return
        if self.options.plugin:
            self.plugin_failures()
            return
        self.push(0)
        self.misfit()
        for scheme in ("sglang", "sglang+tensor"):
            if self.options.scheme in (scheme, "both"):
                self.unseen(scheme)

    def unseen(self, scheme):
        """A push to a server with a /dev/shm of its own."""
        self.server.stop()
        self.server = self.Server(self.options, self.directories[0], self.log, blind=True)
        self.schemes = itertools.repeat(scheme)
        self.refused(f"{scheme}: a server that cannot see the staged version")
        if scheme == "sglang":
            self.check("it holds what it held", 0)
        elif self.server.ended():
            print("it has ended, as SGLang does where a scheduler fails", flush=True)
        else:
            self.wrong("it goes on, and was given no tensors")

    def misfit(self):
        """The server's directory gets a larger hidden size than it was started with, and so do the weights."""
        # Not a larger intermediate size: on a CPU SGLang cuts such weights to its size, and says that it loaded them.
        wide = self.folder / "wide"
        config = json.loads((self.directories[0] / "config.json").read_text())
        config["hidden_size"] *= 2
        push_run.save_random(config, wide)
        kept = self.folder / "kept"
        shutil.copytree(self.directories[0], kept)
        shutil.copytree(wide, self.directories[0], dirs_exist_ok=True)
        self.refused("weights of other shapes", wide)
        shutil.copytree(kept, self.directories[0], dirs_exist_ok=True)
        try:
            print(f"left: version {self.server.weight_version()}, paused: {self.server.paused()}", flush=True)
        except OSError as error:
            print(f"left: no server ({error}); it has ended: {self.server.ended()}", flush=True)
            self.server.stop()
            self.server = self.Server(self.options, self.directories[0], self.log)
        self.version = 0
        for which in (1, 0):
            self.push(which)
            self.check("the next push", which)


Run(parsed(), pathlib.Path(tempfile.mkdtemp(prefix="sglang_push."))).all()
