"""Pushes different weights of one architecture into a real vLLM, in turn, by `tandem-sync push`.

What the server then says is compared with transformers on the weights that were pushed, and its version with the one
that was asked for. In bfloat16 two programs differ by more than a wrong tensor might: there a push is compared with a
server that was started on the same weights, which must say the same, and transformers' distance is printed beside it.
With --pushes N, memory, descriptors and /dev/shm of the tenth push are compared with those of the last, on both sides;
--kills N kills N pushers at random moments; --traffic has a client complete all the time and checks each of its answers.
Exit code 1 when anything differs.
"""
import argparse
import os
import pathlib
import secrets
import tempfile

import push_run
import vllm_plugin
from vllm_server import Server


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    push_run.add_options(parser)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--tokenizer", help="directory; for random models, whose token ids it must cover")
    parser.add_argument("--plugin", metavar="LIBRARY", help="libtandem_sync.so: the servers run our plug-in with it")
    parser.add_argument("--tcp", action="store_true", help="with --plugin: weights reach its workers over TCP")
    parser.add_argument("--port", type=int, default=8123)
    return parser.parse_args()


class Run(push_run.Run):
    def failures(self):
        """A worker of the plug-in fails before and inside its load; the next push heals either."""
        if not self.options.plugin:
            return
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


options = parsed()
folder = pathlib.Path(tempfile.mkdtemp(prefix="vllm_push."))
if options.plugin:
    vllm_plugin.install(folder, options.plugin)
if options.tcp:
    os.environ |= {"TANDEM_DATA_LISTEN": "127.0.0.1:0", "TANDEM_API_KEY": secrets.token_hex()}
Run(options, folder, Server, "vllm", "?transport=tcp" if options.tcp else "").all()
