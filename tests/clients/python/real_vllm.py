"""Publishes an FSDP2 model into a real vLLM, and compares what it then says with transformers on full_tensor()'s weights.

    scripts/python_check.sh PYTHON --vllm --tokenizer DIR [--tied] [--pushes 3]

PYTHON: of an environment with vLLM's CPU build and transformers; DIR: any tokenizer of Hugging Face's.

Not among the other cases: the environment takes 6 GB, and the server a minute to start.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

import tandem

sys.path.insert(0, str(Path(__file__).parents[2] / "peers"))
import vllm_models  # noqa: E402
import vllm_server  # noqa: E402


def run_rank(rank, ranks, rendezvous, folder, url, pushes, to_parent):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
    whole = transformers.AutoModelForCausalLM.from_pretrained(folder)  # what transformers is asked with
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    sharded = dict(model.named_parameters())
    with tandem.Session(engines=[url] if rank == 0 else [], deadline=120) as sync:
        sync.adopt(model)  # auto takes gather all the same: the server is handed whole versions
        sync.publish(model)
        for version in range(1, pushes + 1):
            torch.manual_seed(version)  # the same on every rank, element by element of the whole
            with torch.no_grad():
                for name, parameter in whole.named_parameters():
                    parameter.mul_(1 + 0.05 * torch.randn_like(parameter))
                    shard = sharded[name]
                    shard.copy_(distribute_tensor(parameter, mesh, shard.placements))
            report = sync.push(version=version)
            assert report.mode == "gather", report.mode
            for name, parameter in whole.named_parameters():
                assert torch.equal(parameter, sharded[name].full_tensor()), f"'{name}' was not sharded as it should be"
            if rank == 0:
                to_parent.send((version, vllm_models.expected(whole.eval()), report))
                to_parent.recv()  # compared
            dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description="an FSDP2 model into a real vLLM")
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--pushes", type=int, default=3)
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--tokenizer", required=True, help="a directory with any tokenizer")
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        shapes = SimpleNamespace(tied=options.tied, family="qwen3")
        vllm_models.random_model(shapes, torch.float32).save_pretrained(f"{folder}/model")
        log = open(f"{folder}/log", "w")
        served = SimpleNamespace(port=options.port, vllm=os.path.join(os.path.dirname(sys.executable), "vllm"),
                                 dtype="float32", tokenizer=options.tokenizer)
        server = vllm_server.Server(served, f"{folder}/model", log)
        ours, theirs = mp.get_context("spawn").Pipe()
        ranks = mp.start_processes(run_rank, nprocs=2, start_method="spawn", join=False,
                                   args=(2, f"{folder}/rendezvous", f"{folder}/model", f"vllm://127.0.0.1:{options.port}",
                                         options.pushes, theirs))
        try:
            for _ in range(options.pushes):
                while not ours.poll(1):
                    ranks.join(timeout=0)  # raises what a rank raised
                version, wanted, report = ours.recv()
                tokens, most, _ = vllm_models.differences(server.ask(), wanted)
                says = server.weight_version()
                right = tokens == 0 and most < 1e-3 and says == str(version)
                good = good and right
                print(f"version {version}: {tokens} of {len(wanted)} answers differ, log-probs by at most {most:.1e}, "
                      f"the server says {says}, paused {report.paused_ms:.0f} ms: {'ok' if right else 'WRONG'}", flush=True)
                ours.send("go on")
            while not ranks.join(timeout=60):
                pass
        finally:
            server.stop()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
