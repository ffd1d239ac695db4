"""Pushes different weights of one architecture into a real vLLM, in turn, by `tandem-sync push`.

What the server then says is compared with transformers on the weights that were pushed, and its version with the one
that was asked for. In bfloat16 two programs differ by more than a wrong tensor might: there a push is compared with a
server that was started on the same weights, which must say the same, and transformers' distance is printed beside it.
With --pushes N, memory, descriptors and /dev/shm of the tenth push are compared with those of the last, on both sides;
--kills N kills N pushers at random moments; --traffic has a client complete all the time and checks each of its answers.
Exit code 1 when anything differs.
"""
import argparse
import pathlib
import tempfile

import plugin
import push_run
from vllm_server import Server


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    push_run.add_options(parser)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--tokenizer", help="directory; for random models, whose token ids it must cover")
    plugin.add_options(parser)
    parser.add_argument("--port", type=int, default=8123)
    return parser.parse_args()


class Run(push_run.Run):
    def failures(self):
        if self.options.plugin:
            self.plugin_failures()


options = parsed()
folder = pathlib.Path(tempfile.mkdtemp(prefix="vllm_push."))
Run(options, folder, Server, "vllm", plugin.use(options, folder)).all()
