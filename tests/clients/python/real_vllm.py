"""Publishes FSDP2 and HSDP models into a real vLLM, and compares what it then says with transformers on the same weights.

    scripts/python_check.sh PYTHON --vllm --tokenizer DIR [--pushes 3] [--plugin LIBRARY] [CASE]…

PYTHON: of an environment with vLLM's CPU build and transformers; DIR: any tokenizer of Hugging Face's; CASE: a name of
layouts.CASES (without: all that FSDP2 and HSDP have there); LIBRARY: libtandem_sync.so, the server then runs our plug-in.
With 20 pushes and more, memory, descriptors and /dev/shm of server and ranks after the tenth are compared with the last's.

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
from torch.distributed.tensor import DTensor, distribute_tensor

import layouts
import tandem_sync

sys.path.insert(0, str(Path(__file__).parents[2] / "peers"))
import vllm_models  # noqa: E402
import plugin  # noqa: E402
import vllm_server  # noqa: E402

transformers.utils.logging.disable_progress_bar()


def change(whole, sharded, version):
    """Other weights for each version, the same in the model of one process and in the sharded one."""
    torch.manual_seed(version)  # the same on every rank, element by element of the whole
    with torch.no_grad():
        for name, parameter in whole.named_parameters():
            parameter.mul_(1 + 0.05 * torch.randn_like(parameter))
            shard = sharded[name]
            shard.copy_(distribute_tensor(parameter, shard.device_mesh, shard.placements))
    for name, parameter in whole.named_parameters():
        assert torch.equal(parameter, sharded[name].full_tensor()), f"'{name}' was not sharded as it should be"


def own_footprint():
    status = Path("/proc/self/status").read_text().splitlines()
    rss = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return {"rss_mib": rss / 1024, "descriptors": len(os.listdir("/proc/self/fd"))}


def run_rank(rank, ranks, rendezvous, folder, url, case, versions, to_parent):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
    whole = transformers.AutoModelForCausalLM.from_pretrained(folder)  # what transformers is asked with
    model = layouts.CASES[case][2](transformers.AutoModelForCausalLM.from_pretrained(folder))
    sharded = {tandem_sync.hf(name): parameter for name, parameter in model.named_parameters()}
    assert all(isinstance(parameter, DTensor) for parameter in sharded.values())
    with tandem_sync.Session(engines=[url] if rank == 0 else [], deadline=120) as sync:
        sync.adopt(model)
        sync.publish(model)
        for version in versions:
            change(whole, sharded, version)
            report = sync.push(version=version)
            held = [None] * ranks
            dist.all_gather_object(held, own_footprint())
            if rank == 0:
                to_parent.send((version, vllm_models.expected(whole.eval()), report, held))
                to_parent.recv()  # compared
            dist.barrier()
    dist.destroy_process_group()


def grown(before, after):
    return after["rss_mib"] > 1.02 * before["rss_mib"] or after["descriptors"] > before["descriptors"]


class Run:
    def __init__(self, options, folder, tied):
        self.options, self.folder, self.good = options, folder, True
        self.version = 0
        if options.plugin:
            plugin.install(Path(folder), options.plugin)
        torch.manual_seed(0)
        vllm_models.random_model(SimpleNamespace(tied=tied, family="qwen3"), torch.float32).save_pretrained(f"{folder}/model")
        self.server = vllm_server.Server(options, f"{folder}/model", open(f"{folder}/log", "w"))

    def case(self, case):
        ranks = layouts.CASES[case][0]
        versions = range(self.version + 1, self.version + 1 + self.options.pushes)
        self.version = versions[-1]
        ours, theirs = mp.get_context("spawn").Pipe()
        processes = mp.start_processes(run_rank, nprocs=ranks, start_method="spawn", join=False,
                                       args=(ranks, f"{self.folder}/rendezvous{self.version}", f"{self.folder}/model",
                                             self.server.target, case, versions, theirs))
        tenth = None
        for number, version in enumerate(versions, 1):
            while not ours.poll(1):
                processes.join(timeout=0)  # raises what a rank raised
            answered, wanted, report, held = ours.recv()
            self.compare(case, answered, wanted, report, quiet=number > 3 and number % 10 != 0)
            if number in (10, self.options.pushes):
                now = held, self.server.footprint()
                tenth = tenth or now
            ours.send("go on")
        while not processes.join(timeout=60):
            pass
        if self.options.pushes >= 20:
            self.compare_footprints(case, tenth, now)

    def compare(self, case, version, wanted, report, quiet):
        tokens, most, _ = vllm_models.differences(self.server.ask(), wanted)
        says = self.server.weight_version()
        right = tokens == 0 and most < 1e-3 and says == str(version)
        self.good = self.good and right
        if not (quiet and right):
            print(f"{case}: version {version}: {tokens} of {len(wanted)} answers differ, log-probs by at most {most:.1e}, "
                  f"the server says {says}, {report.mode}, paused {report.paused_ms:.0f} ms: {'ok' if right else 'WRONG'}",
                  flush=True)

    def compare_footprints(self, case, tenth, last):
        (ranks, server), (ranks_now, server_now) = tenth, last
        worse = (grown(server, server_now) or server["shm"] != server_now["shm"]
                 or any(grown(before, after) for before, after in zip(ranks, ranks_now)))
        self.good = self.good and not worse
        print(f"{case}: since the tenth push: server {server} → {server_now}, ranks {ranks} → {ranks_now}: "
              f"{'GROWN' if worse else 'not grown'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="FSDP2 and HSDP models into a real vLLM")
    parser.add_argument("--pushes", type=int, default=3)
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--tokenizer", required=True, help="a directory with any tokenizer")
    parser.add_argument("--plugin", metavar="LIBRARY")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    options.vllm, options.dtype = os.path.join(os.path.dirname(sys.executable), "vllm"), "float32"
    sharded = [name for name in layouts.CASES if "SDP" in name and "TP" not in name and "bf16" not in name]
    good = True
    for tied in (False, True):
        cases = [name for name in options.cases or sharded if layouts.CASES[name][1] == tied]
        if not cases:
            continue
        with tempfile.TemporaryDirectory() as folder:
            run = Run(options, folder, tied)
            try:
                for case in cases:
                    run.case(case)
            finally:
                run.server.stop()
            good = good and run.good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
