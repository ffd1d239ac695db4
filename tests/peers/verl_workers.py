"""verl's workers with what a test asks of them: actors that change their weights, rollout workers that say what they received."""
import hashlib
import os
import signal

import torch
import verl_cpu
from verl.checkpoint_engine import CheckpointEngineRegistry, CheckpointEngineWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.engine_workers import TrainingWorker
from verl.workers.rollout import BaseRollout, RolloutReplica

FACTOR = 1.05


def digest(tensor):
    values = tensor.detach().contiguous().view(-1).view(torch.uint8)
    return f"{tuple(tensor.shape)} {tensor.dtype} {hashlib.sha256(values.numpy().tobytes()).hexdigest()}"


class Actor(TrainingWorker):
    def __init__(self, config, checkpoint_engine):
        # Before verl's, which asks for the CPU's and the device's communication, here one and the same.
        torch.distributed.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
        verl_cpu.register_engine()
        torch.Tensor.pin_memory = lambda self, *_: self
        super().__init__(config)
        backend = checkpoint_engine.backend
        self.checkpoint_engine = CheckpointEngineRegistry.new(
            backend, bucket_size=checkpoint_engine.update_weights_bucket_megabytes << 20,
            is_master=torch.distributed.get_rank() == 0, **checkpoint_engine.engine_kwargs.get(backend, {}))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps=None, mode="auto"):
        """As ActorRolloutRefWorker's, for actors and rollouts that are apart."""
        weights = self.engine if mode == "delta_sharded" else self.engine.get_per_tensor_param()[0]
        return await self.checkpoint_engine.send_weights(weights, global_steps=global_steps) or {}

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method, *args, **kwargs):
        return getattr(self.checkpoint_engine, method)(*args, **kwargs)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def change(self):
        with torch.no_grad():
            for parameter in self.engine.module.parameters():
                getattr(parameter, "_local_tensor", parameter).mul_(FACTOR)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def digests(self, path=None):
        """Of the whole tensors, which `path` gets."""
        whole = {name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
                 for name, tensor in self.engine.get_per_tensor_param()[0]}
        if path and torch.distributed.get_rank() == 0:
            torch.save(whole, path)
        return {name: digest(tensor) for name, tensor in whole.items()}


class Adapter(BaseRollout):
    """An inference engine that remembers what it was given last, whole."""

    def __init__(self, config, model_config):
        super().__init__(config, model_config, device_mesh=None)
        self.received, self.steps, self.replica_rank, self.is_leader_rank = {}, None, 0, True
        self.dies = ""  # in the next sync: before it "joins", or while it "loads"

    async def resume(self, tags): pass
    async def release(self): pass

    async def update_weights(self, weights, global_steps=None, **_):
        received = {}
        if self.dies == "joins":
            os.kill(os.getpid(), signal.SIGKILL)
        async for name, tensor in weights:
            if self.dies == "loads" and received:
                os.kill(os.getpid(), signal.SIGKILL)
            received[name] = digest(tensor)
        self.received, self.steps = received, global_steps


class Rollout(CheckpointEngineWorker):
    def __init__(self, rollout_config, model_config, elsewhere=False):
        if elsewhere:  # as far as our back end can tell
            from tandem_sync.verl import engine, inbox

            engine.here = inbox.here = lambda: "another host"
        super().__init__(rollout_config, model_config, Adapter(rollout_config, model_config))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def received(self):
        return self.server_adapter.received

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def dies(self, when):
        self.server_adapter.dies = when

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def stand(self):
        """What of the process could grow: descriptors, mapped staging files."""
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), sum("tandem-staging" in line for line in maps)


class Replica(RolloutReplica):
    """One worker, no server."""

    def __init__(self, worker, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.workers = [worker]

    def get_ray_class_with_init_args(self): raise NotImplementedError
    async def launch_servers(self): raise NotImplementedError
    async def abort_all_requests(self, **_): pass
    async def resume_generation(self): pass
    async def release_kv_cache(self): pass
    async def resume_kv_cache(self): pass
