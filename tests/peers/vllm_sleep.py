"""Pushes into a real vLLM that sleeps, and trains with one that sleeps meanwhile (memory.engine_sleep).

On the CPU: vLLM's routes, scheduler and executor are its own there, and its workers, which would ignore it, are made to: what
--enable-sleep-mode wants of the platform is granted, level 2 fills the parameters with zeros, and a cache that is released is
kept. So what is seen there is who is paused when, and what it answers afterwards; memory is not. With --gpu nothing is
stood in for: what each way of sleeping frees is measured, and answers are compared with those of the same server after
pushes while it was awake. Exit code 1 when anything differs.
"""
import argparse
import contextlib
import json
import pathlib
import tempfile
import urllib.request

import gpu_memory
import plugin
import tandem_push
import vllm_models
import vllm_server
from train_run import train

SLEEPS = '''
def register():
    from vllm.platforms.cpu import CpuPlatform
    CpuPlatform.is_sleep_mode_available = lambda *_: True
    from vllm.v1.worker.cpu_worker import CPUWorker

    def sleep(self, level=1):
        if level == 2:
            for parameter in self.model_runner.model.parameters():
                parameter.data.zero_()

    CPUWorker.sleep = sleep
    CPUWorker.wake_up = lambda self, tags=None: None
    CPUWorker.discard = lambda self, tags: None
'''


def awake(server):
    """As /metrics says it."""
    with urllib.request.urlopen(server.url + "/metrics", timeout=60) as answer:
        lines = [line for line in answer.read().decode().splitlines()
                 if line.startswith("vllm:engine_sleep_state{") and 'sleep_state="awake"' in line]
    assert len(lines) == 1, lines
    return float(lines[0].split()[-1]) == 1


def put_to_sleep(server, how, version):
    if how == "cache":
        server.call("/pause?mode=wait")
        server.call("/release_kv_cache_memory")
    elif how == "paused":
        server.call("/pause?mode=wait")
    else:
        if how == "2":
            server.post("/update_weight_version", {"new_version": f"loading {version}"})
        server.call(f"/sleep?level={how}&mode=wait")
    assert server.paused() and awake(server) == (how == "paused"), how


def push(options, server, directory):
    done = tandem_push.succeed(options.program, directory, server.target, "--deadline", "60")
    return done.stdout + done.stderr


def check_pushes(options, server, directories, wanted):
    worst, version = 0, 0
    if options.gpu:  # products are another program's, and coarser than transformers' on the CPU
        wanted = []
        for version, directory in enumerate(directories, 1):
            push(options, server, directory)
            wanted.append(server.ask())
    freed = {}
    for how in ["cache", "1", "2", "paused"] * options.rounds:
        version += 1
        which = version % len(directories)
        before = gpu_memory.used_mib()
        put_to_sleep(server, how, version)
        freed.setdefault(how, []).append(before - gpu_memory.used_mib())
        said = push(options, server, directories[which])
        assert ("sleeps: it answers again" in said) == (how != "paused"), (how, said)
        assert server.paused() and server.weight_version() == str(version), (how, said)
        if how == "paused":
            server.call("/resume")
        else:
            assert not awake(server), how
            assert '"awake"' in server.call("/wake_up?tags=kv_cache"), how
        assert not server.paused() and awake(server), how
        worst = max(worst, vllm_models.apart(server.ask(), wanted[which]))
    assert worst < (1e-6 if options.gpu else 1e-3), worst
    print(f"  {version} pushes into a server that sleeps: log-probs to {worst:.1e} of "
          f"{'pushes while it was awake' if options.gpu else 'transformers'}", flush=True)
    if options.gpu:
        print(f"  freed, MiB: {freed}", flush=True)
        assert all(min(freed[how]) > 100 for how in freed if how != "paused"), freed


def check_training(options, folder, log):
    device = "device=cuda" if options.gpu else "device=cpu"
    train(options.train, f"output={folder}", device, "name=made", "sft.steps=20", "grpo.steps=0", "model.heads=2",
          "model.kv_heads=1", "model.head_dim=32", "model.context=128", "model.tie_embeddings=false")
    made = folder / "made" / "checkpoint"
    options.serve_option = [*options.serve_option, "--no-enable-chunked-prefill", "--logprobs-mode", "processed_logprobs",
                            "--enable-scale-out"]
    server = vllm_server.Server(options, made, log)
    try:
        for level in ["kv_cache", "all"]:
            with gpu_memory.watched() if options.gpu else contextlib.nullcontext() as memory:
                said = train(options.train, f"output={folder}", device, f"name={level}", f"model.path={made}", "sft.steps=0",
                             f"grpo.steps={options.steps}", f"engine.url={server.target}",
                             f"memory.engine_sleep={level}")
            version = int(server.weight_version())
            assert version == options.steps + 1, (version, said)  # the start, and every step
            assert not server.paused() and awake(server), said
            apart_by = json.loads((folder / level / "summary.json").read_text())["logprob_max_abs_diff"]
            assert apart_by < (3e-2 if options.gpu else 1e-3), apart_by
            if options.gpu:
                memory.check()
                print(f"  GPU memory, MiB, least and most of each tenth of the run: {memory.tenths()}", flush=True)
            print(f"  tandem-train with memory.engine_sleep = {level}: {options.steps} steps, log-probs of its samples to "
                  f"{apart_by:.1e} of the trainer's; it is awake", flush=True)
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", required=True, help="the command")
    parser.add_argument("--program", required=True, help="tandem-sync")
    parser.add_argument("--train", help="tandem-train: runs with it too; from the repository's root")
    parser.add_argument("--plugin", metavar="LIBRARY", help="libtandem_sync.so: the server runs our plug-in with it")
    parser.add_argument("--tokenizer", required=True, help="a directory with one")
    parser.add_argument("--family", default="qwen3", choices=["llama", "qwen2", "qwen3"])
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--gpu", action="store_true", help="the server's workers are vLLM's own, and memory is measured")
    parser.add_argument("--serve-option", action="append", default=[], help="passed on to every server")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="of each training run")
    parser.add_argument("--port", type=int, default=30414)
    options = parser.parse_args()
    options.model, options.models, options.dtype = None, 3, "float32"
    options.serve_option.append("--enable-sleep-mode")
    with tempfile.TemporaryDirectory() as name, \
            open(pathlib.Path(tempfile.gettempdir()) / "vllm_sleep.log", "w") as log:
        folder = pathlib.Path(name)
        if options.plugin:
            plugin.install(folder, options.plugin)
        directories, wanted = vllm_models.make_models(options, folder)
        with contextlib.nullcontext() if options.gpu else plugin.in_workers(folder, "sleeps_on_cpu", SLEEPS):
            server = vllm_server.Server(options, directories[0], log)
            try:
                check_pushes(options, server, directories, wanted)
            finally:
                server.stop()
            if options.train:
                check_training(options, folder, log)
    print("  ok")


main()
