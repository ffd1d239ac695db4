"""For how long a version by CUDA IPC pauses a real vLLM: pushed by tandem-sync, and sent by vLLM's own trainer engine.

One server, one GPU, the same weights, turns alternating; run by a Python that has vLLM 0.32 or later and PyTorch. "paused" is from
the pause to the answer of resume. The weights of vLLM's own sender lie on the GPU already; a push reads a directory, before
the pause, and "prepared" says for how long. Prints one JSON object: medians in ms.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "peers"))
import tandem_push  # noqa: E402
from vllm_server import Server  # noqa: E402


class Theirs:
    """vLLM's trainer engine over its HTTP client, whose source is a model on this process's GPU."""

    def __init__(self, server, model, packed):
        from vllm.distributed.weight_transfer.base import ModuleSource
        from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo, IPCTrainerWeightTransferEngine

        self.server = server
        self.make = lambda: IPCTrainerWeightTransferEngine.trainer_init(
            IPCTrainerInitInfo(rank=0, packed=packed), client=HTTPVLLMWeightSyncClient(server.url), source=ModuleSource(model))

    def send(self):
        engine = self.make()  # before the pause, as a push asks its server before
        torch.cuda.synchronize()
        start = time.perf_counter()
        self.server.call("/pause?mode=wait")
        engine.send_weights()
        self.server.call("/reset_prefix_cache")
        self.server.call("/resume")
        return (time.perf_counter() - start) * 1000


def push(options, server, directory):
    done = tandem_push.succeed(options.program, directory, server.target, "--no-probe")
    report = tandem_push.report(done.stdout)
    return report["paused_ms"], report["prepared_ms"], report["bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", required=True, help="the command")
    parser.add_argument("--program", required=True, help="tandem-sync")
    parser.add_argument("--shapes", required=True, help="directory with a config.json and a tokenizer; weights are random")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--serve-option", action="append", default=[])
    parser.add_argument("--port", type=int, default=8125)
    options = parser.parse_args()
    options.tokenizer, options.dtype = options.shapes, "bfloat16"
    options.serve_option += ["--weight-transfer-config", '{"backend":"ipc"}']
    os.environ |= {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1", "VLLM_SERVER_DEV_MODE": "1"}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory, \
            open(pathlib.Path(tempfile.gettempdir()) / "vllm_ipc.log", "w") as log:
        config = transformers.AutoConfig.from_pretrained(options.shapes)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(directory)
        model.cuda()
        server = Server(options, directory, log)
        try:
            theirs = {"vllm": Theirs(server, model, False), "vllm_packed": Theirs(server, model, True)}
            paused, prepared = {"tandem": [], **{name: [] for name in theirs}}, []
            for number in range(options.rounds + 2):  # the first two warm both up
                ours = push(options, server, directory)
                others = {name: sender.send() for name, sender in theirs.items()}
                if number >= 2:
                    paused["tandem"].append(ours[0])
                    prepared.append(ours[1])
                    for name, ms in others.items():
                        paused[name].append(ms)
        finally:
            server.stop()
    median = {name: round(statistics.median(values), 1) for name, values in paused.items()}
    json.dump({"gpu": torch.cuda.get_device_name(0), "bytes": ours[2], "rounds": options.rounds, "paused_ms": median,
               "tandem_prepared_ms": round(statistics.median(prepared), 1),
               "paused_ms_each": {name: [round(one, 1) for one in values] for name, values in paused.items()}},
              sys.stdout, indent=1)
    print()


main()
