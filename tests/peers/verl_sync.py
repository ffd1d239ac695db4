"""verl on CPU cores, synced by tandem_sync.verl: its CheckpointEngineManager, two FSDP2 actors, two rollout workers and more, by
full tensors and by shards; with --serve the same actors into a real vLLM, too.

Right: every worker receives, bit by bit, what the actors hold, over five versions and with steps that stand still, go back or
are not told; a worker that is killed, removed or added meanwhile costs one sync at most; LoRA is refused by name; vLLM's version
is the step and its log-probs are the model's to 1e-5. Exit code 1 when anything is wrong.
"""
import argparse
import logging
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = HERE.parents[1] / "sync" / "python"
MAKE_MODEL = """
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>").save_pretrained(sys.argv[1])
torch.manual_seed(0)
config = Qwen3Config(vocab_size=259, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=32, max_position_embeddings=512, tie_word_embeddings=sys.argv[2] == "tied",
                     eos_token_id=1, pad_token_id=0)
Qwen3ForCausalLM(config).float().save_pretrained(sys.argv[1])
"""


PARTS = ("syncs", "tcp", "refusals", "serve")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, help="libtandem_sync.so")
    parser.add_argument("--serve", metavar="VENV", help="with vLLM's CPU build: the actors push into its server, too")
    parser.add_argument("--only", action="append", choices=PARTS, help="may be repeated")
    parser.add_argument("--port", type=int, default=8128)
    return parser.parse_args()


def environment(folder, library):
    """For this process and those of Ray's; the entry point as the wheel has it."""
    info = folder / "entry" / "tandem_verl-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tandem-verl\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[verl.plugins]\ntandem = tandem_sync.verl\n")
    paths = [str(info.parent), str(PACKAGES), str(HERE)]
    os.environ |= {"TANDEM_SYNC_LIBRARY": str(pathlib.Path(library).resolve()), "VERL_PLATFORM": "cpu",
                   "VERL_USE_EXTERNAL_MODULES": "verl_cpu", "RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0",
                   "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])}
    sys.path[:0] = paths


class Run:
    def __init__(self, folder):
        self.folder, self.failed = folder, False

    def expect(self, what, holds):
        print(what + ("" if holds else ": WRONG"), flush=True)
        self.failed = self.failed or not holds

    def registered(self):
        """verl swallows what fails while a plug-in is imported: so it is asked, with and without our library."""
        code = "import verl; from verl.checkpoint_engine import CheckpointEngineRegistry as R; print(R.get('tandem').__module__)"
        for what, library in {"": os.environ["TANDEM_SYNC_LIBRARY"], ", without our library": "/nowhere.so"}.items():
            told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                  env=os.environ | {"TANDEM_SYNC_LIBRARY": library})
            self.expect(f"import verl registers the back end{what}", told.stdout.strip() == "tandem_sync.verl.engine")

    def world(self, model, sharded, engines=(), lora=None, elsewhere=False):
        return World(self, model, sharded, engines, lora or {}, elsewhere)

    def refuses(self, what, world, *words):
        try:
            world.sync(1)
            told = "nothing was refused"
        except Exception as error:
            told = str(error)
        self.expect(f"{what} is refused by name", all(word in told for word in words))
        if not all(word in told for word in words):
            print(told[-2000:])


class World:
    """Actors, rollout workers and verl's manager between them."""

    def __init__(self, run, model, sharded, engines, lora, elsewhere):
        from verl.checkpoint_engine import CheckpointEngineManager
        from verl.workers.config import CheckpointEngineConfig, FSDPEngineConfig, HFModelConfig, RolloutConfig
        from verl.workers.engine_workers import TrainingWorkerConfig

        import tandem_sync.verl
        from verl_workers import Actor

        self.run, self.times, self.pools = run, [], []
        settings = CheckpointEngineConfig(backend="tandem", engine_kwargs={"tandem": {
            "deadline": 20.0, "wait": 60.0, **({"engines": list(engines)} if engines else {})}})
        self.elsewhere = elsewhere
        self.model = HFModelConfig(path=str(model), use_remove_padding=False,
                                   override_config={"attn_implementation": "sdpa"}, **lora)
        self.rollout = RolloutConfig(name="vllm", checkpoint_engine=settings, tensor_model_parallel_size=1)
        self.actors = self._group(Actor, 2, checkpoint_engine=settings, config=TrainingWorkerConfig(
            model_type="language_model", model_config=self.model,
            engine_config=FSDPEngineConfig(forward_only=True, fsdp_size=2, strategy="fsdp2", use_torch_compile=False)))
        self.actors.reset()
        self.groups = []
        manager = tandem_sync.verl.ShardedCheckpointManager if sharded else CheckpointEngineManager
        self.manager = manager(settings, self.actors, [*self.add(2)])
        self.name = "shards" if sharded else "full tensors"

    def _group(self, cls, count, **arguments):
        import ray
        from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

        pool = RayResourcePool([count], use_gpu=False, max_colocate_count=1)
        self.pools.append(pool)
        return RayWorkerGroup(resource_pool=pool, device_name="cpu",
                              ray_cls_with_init=RayClassWithInitArgs(cls=ray.remote(cls), **arguments))

    def add(self, count):
        from verl_workers import Replica, Rollout

        group = self._group(Rollout, count, rollout_config=self.rollout, model_config=self.model, elsewhere=self.elsewhere)
        self.groups.append(group)
        return [Replica(worker, replica_rank=rank, config=self.rollout, model_config=self.model)
                for rank, worker in enumerate(group.workers)]

    def sync(self, step):
        self.started = time.perf_counter()
        told = self.manager.update_weights(step)
        self.times.append(self.took())
        return told

    def took(self):
        return (time.perf_counter() - self.started) * 1000

    def check(self, what, step, version=None):
        """A sync, after which every worker holds what the actors do."""
        import ray

        self.actors.change()
        told = self.sync(step)
        want = self.actors.digests()[0]
        got = [ray.get(replica.workers[0].received.remote()) for replica in self.manager.replicas]
        right = bool(want) and all(one == want for one in got)
        right = right and (version is None or told["perf/tandem_version"] == version)
        self.run.expect(f"{self.name}, {what}: {len(got)} workers, {len(want)} tensors bit-equal, version "
                        f"{told['perf/tandem_version']:.0f}", right)
        if not right:
            for one in got:
                print("  ", [name for name in {*want, *one} if want.get(name) != one.get(name)][:5])

    def close(self):
        import ray
        from ray.util.placement_group import remove_placement_group

        for group in [self.actors, *self.groups]:
            for worker in group.workers:
                ray.kill(worker)
        for pool in self.pools:
            for placement in pool.pgs or []:
                remove_placement_group(placement)


def all_of_it(run, model, sharded, elastic):
    import ray

    world = run.world(model, sharded)
    for step in range(1, 6):
        world.check(f"step {step}", step, step)
    world.check("the same step again", 5, 5)
    world.check("a step that was before", 2, 2)
    world.check("no step told", None, 3)
    if elastic:
        come_and_go(run, world)
    before = [ray.get(replica.workers[0].stand.remote()) for replica in world.manager.replicas]
    for step in range(9, 29):
        world.actors.change()
        world.sync(step)
    after = [ray.get(replica.workers[0].stand.remote()) for replica in world.manager.replicas]
    run.expect(f"{world.name}: 20 syncs more take {statistics.median(world.times[-20:]):.1f} ms each (median, whole sync of "
               f"verl's), and descriptors stay {before} -> {after}", before == after)
    world.close()


def come_and_go(run, world):
    import ray

    first, second = world.manager.replicas
    world.manager.remove_replicas([second])
    world.check("a worker removed", 4, 4)
    world.manager.add_replicas([second, *world.add(1)])
    world.check("that one and a new one added", 5, 5)
    for dead, name, when in ((first, "who owns the memory", ""), (second, "who maps it", ""), (None, "who owns it", "joins"),
                             (None, "who owns it", "loads"), (None, "who maps it", "joins"), (None, "who maps it", "loads")):
        replicas = world.manager.replicas
        if len(replicas) < 2:
            world.manager.add_replicas(world.add(1))
        if dead is None:
            dead = replicas[0 if name == "who owns it" else -1]
        if dead is second:
            replicas.sort(key=lambda replica: replica is second)  # the last one owns nothing
        world.check("before a death", 8, 8)
        if when:
            ray.get(dead.workers[0].dies.remote(when))
        else:
            ray.kill(dead.workers[0])
        try:
            world.sync(9)
            run.expect(f"{world.name}, a worker killed: the sync fails", False)
        except Exception as error:
            moment = f"as it {when}" if when else "between syncs"
            run.expect(f"{world.name}, a worker killed {moment}, {name}: {type(error).__name__} after {world.took():.0f} ms",
                       "Actor" in type(error).__name__ and world.took() < 15000)
        world.manager.remove_replicas([dead])
        world.check("and removed", 7, 7)
    world.manager.add_replicas(world.add(1))
    world.check("and another one added", 8, 8)


def refusals(run, model):
    lora = {"lora_rank": 4, "lora_alpha": 8, "target_modules": "all-linear"}
    for sharded in (False, True):
        world = run.world(model, sharded, lora=lora)
        run.refuses(f"LoRA by {world.name}", world, "LoRA")
        world.close()
    world = run.world(model, False, lora=lora | {"lora": {"merge": True}})
    world.check("LoRA, merged", 1, 1)
    world.close()
    world = run.world(model, False, engines=["vllm://127.0.0.1:9"])
    run.refuses("a server outside that is not there", world, "127.0.0.1:9")
    world.close()


def into_vllm(run, model, venv, port):
    from server_process import ServerProcess
    from trl_run import model_logprobs, served_logprobs

    import torch
    from transformers import AutoModelForCausalLM

    serving = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VERL_USE_EXTERNAL_MODULES")}
    url = f"http://127.0.0.1:{port}"
    command = [f"{venv}/bin/vllm", "serve", str(model), "--served-model-name", "model", "--host", "127.0.0.1", "--port", str(port),
               "--max-model-len", "256", "--enforce-eager", "--dtype", "float32", "--logprobs-mode", "processed_logprobs",
               "--max-logprobs", "-1", "--gpu-memory-utilization", "0.1"]
    server = ServerProcess(["/usr/bin/env", "-i", *[f"{k}={v}" for k, v in serving.items()], *command], url,
                           open(run.folder / "server.log", "a"))
    try:
        for sharded, steps in ((False, (1, 2, 3)), (True, (4, 5, 6))):
            world = run.world(model, sharded, engines=[f"vllm://127.0.0.1:{port}"])
            for step in steps:
                world.check(f"and vLLM, step {step}", step, step)
            world.actors.digests(str(run.folder / "weights.pt"))
            trained = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
            trained.load_state_dict(torch.load(run.folder / "weights.pt"), strict=False)
            ids = list(range(40, 72))
            difference = max(abs(a - b) for a, b in zip(model_logprobs(trained, ids), served_logprobs(url, ids)))
            told = server.get("/weight_info")["weight_version"]
            run.expect(f"{world.name}: vLLM says version {told}, log-probs differ by {difference:.1e}",
                       told == str(steps[-1]) and difference < 1e-5)
            world.close()
    finally:
        server.stop()


def main():
    options = parsed()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="verl."))
    environment(folder, options.library)
    run = Run(folder)
    for name in ("untied", "tied"):
        subprocess.run([sys.executable, "-c", MAKE_MODEL, str(folder / name), name], check=True, capture_output=True)
    parts = options.only or PARTS
    run.registered()
    import ray

    ray.init(num_cpus=64, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        for name in ("untied", "tied") if "syncs" in parts else ():
            for sharded in (False, True):
                print(f"-- {name}")
                all_of_it(run, folder / name, sharded, elastic=name == "untied")
        for sharded in (False, True) if "tcp" in parts else ():
            world = run.world(folder / "untied", sharded, elsewhere=True)
            for step in (1, 2, 3):
                world.check(f"over TCP, step {step}", step, step)
            world.close()
        if "refusals" in parts:
            refusals(run, folder / "untied")
        if options.serve and "serve" in parts:
            into_vllm(run, folder / "untied", options.serve, options.port)
    finally:
        ray.shutdown()
    if run.failed:
        sys.exit(f"FAILED; logs are in {folder}")
    shutil.rmtree(folder)
    print("ok")


if __name__ == "__main__":
    main()
