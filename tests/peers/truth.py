"""A push says the truth: into real vLLM servers that were started with each kind of loader, what lands and how that is known,
or what is refused by name.

auto, dummy, and runai_streamer from an S3 stub are pushed: known by probe, the same weights again not proven, and with --verify
verified. sharded_state, whose files are of vLLM's own tensors, and a loader that ignores the path it is given are refused by
name, and their servers keep what they have. Exit code 1 when anything is wrong.
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

import plugin
import s3_stub
import tandem_push
from vllm_models import differences, make_models
from vllm_server import Server

IGNORES = '''
def register():
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    class Ignores(DefaultModelLoader):
        """Loads its own model whatever it is told."""

        def __init__(self, config):
            import copy
            own = copy.copy(config)
            own.load_format = "auto"
            super().__init__(own)

        def get_all_weights(self, model_config, model):
            import os
            model_config.model = os.environ["IGNORES_MODEL"]
            return super().get_all_weights(model_config, model)

    register_model_loader("ignores")(Ignores)
'''


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--program", required=True, help="tandem-sync")
    parser.add_argument("--tokenizer", required=True, help="directory; whose token ids random models cover")
    parser.add_argument("--port", type=int, default=8126)
    plugin.add_options(parser)
    options = parser.parse_args()
    options.family, options.tied, options.dtype, options.models, options.model = "qwen3", False, "float32", 3, None
    return options


def shard(directory, to):
    """As vLLM's save_sharded_state writes one rank's: its own tensors, of which some are several of the directory's."""
    to.mkdir()
    for file in directory.glob("*.json"):
        shutil.copy(file, to)
    tensors = load_file(directory / "model.safetensors")
    for whole, parts in {"self_attn.qkv_proj": ("q_proj", "k_proj", "v_proj"), "mlp.gate_up_proj": ("gate_proj", "up_proj")}.items():
        block, name = whole.split(".")
        for first in [key for key in tensors if key.endswith(f"{block}.{parts[0]}.weight")]:
            layer = first.removesuffix(f"{parts[0]}.weight")
            tensors[f"{layer}{name}.weight"] = torch.cat([tensors.pop(f"{layer}{part}.weight") for part in parts])
    for layer in {key.rpartition("self_attn.")[0] for key in tensors if "self_attn.qkv_proj" in key}:
        tensors |= {f"{layer}self_attn.attn._{one}_scale": torch.tensor(1.0) for one in ("q", "k", "v", "prob")}
    save_file(tensors, to / "model-rank-0-part-0.safetensors")
    return to


def main():
    options = parsed()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="truth."))
    directories, wanted = make_models(options, folder)
    log = open(folder / "log", "w")
    failed = False

    def expect(what, holds):
        nonlocal failed
        print(what + ("" if holds else ": WRONG"), flush=True)
        failed = failed or not holds

    def push(server, which, *more):
        done = tandem_push.run(options.program, directories[which], server.target, *more)
        return done.returncode, tandem_push.report(done.stdout)

    def lands(name, server):
        server.ask()  # it compiles at the first
        for which, more, known in ((1, (), "by probe"), (1, (), "not proven"), (2, ("--verify",), "verified"),
                                   (0, ("--no-probe",), "not proven")):
            code, outcome = push(server, which, *more)
            wrong, most, _ = differences(server.ask(), wanted[which])
            expect(f"{name}: {' '.join(['weights', str(which), *more])}: {outcome['known']}, {wrong} answers differ, log-probs by "
                   f"{most:.1e}", code == 0 and outcome["known"] == known and wrong == 0 and most < 1e-3)

    def refused(name, server, words):
        before = server.ask()
        code, outcome = push(server, 1)
        expect(f"{name}: {outcome['error'][:150]}", code == 1 and not outcome["whole"] and all(w in outcome["error"] for w in words)
               and not server.paused() and differences(server.ask(), before)[1] < 1e-6)

    def serve(model, *more, **environment):
        options.serve_option = list(more)
        os.environ |= environment
        return Server(options, model, log)

    def run(check, name, server, *more):
        try:
            check(name, server, *more)
        finally:
            server.stop()

    run(lands, "auto", serve(directories[0]))
    run(lands, "dummy", serve(directories[0], "--load-format", "dummy"))
    with s3_stub.serving(directories[0]) as port:
        run(lands, "runai_streamer of s3://", serve("s3://models/current", "--load-format", "runai_streamer",
                                                    **s3_stub.environment(port)))
    run(refused, "sharded_state", serve(shard(directories[0], folder / "sharded"), "--load-format", "sharded_state"),
        ["model-rank-0-part-0.safetensors, which no index names"])
    with plugin.in_workers(folder, "ignores", IGNORES):
        run(refused, "a loader that ignores paths", serve(directories[0], "--load-format", "ignores",
                                                          IGNORES_MODEL=str(directories[0])), ["--load-format ignores", "plug-in"])
    if failed:
        sys.exit(f"FAILED; the servers' log is {folder / 'log'}")
    shutil.rmtree(folder)
    print("ok")


if __name__ == "__main__":
    main()
