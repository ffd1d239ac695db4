"""verl on CPU cores, for tests: VERL_USE_EXTERNAL_MODULES=verl_cpu VERL_PLATFORM=cpu. By verl's own registries alone: a platform
whose device is the CPU, and its FSDP engine for it (`register_engine`, once verl is imported)."""
import contextlib
import types

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


class Device(types.ModuleType):
    """What verl calls of torch.cuda."""

    def __getattr__(self, name):
        if hasattr(torch.cpu, name):
            return getattr(torch.cpu, name)
        if name == "mem_get_info":
            return lambda *_, **__: (8 << 30, 16 << 30)
        if "memory" in name:
            return lambda *_, **__: 0
        if name in ("get_rng_state", "set_rng_state"):
            return getattr(torch, name)
        if name in ("empty_cache", "ipc_collect", "manual_seed", "manual_seed_all"):
            return lambda *_, **__: None
        raise AttributeError(name)


@PlatformRegistry.register(platform="cpu")
class Cpu(PlatformBase):
    device_name = vendor_name = "cpu"
    device_module = Device("cpu")

    def is_available(self): return True
    def current_device(self): return torch.device("cpu")
    def device_count(self): return 1
    def set_device(self, device_index): pass
    def synchronize(self, device_index=None): pass
    def manual_seed(self, seed): torch.manual_seed(seed)
    def manual_seed_all(self, seed): torch.manual_seed(seed)
    def set_allocator_settings(self, settings): pass
    def empty_cache(self): pass
    def get_device_capability(self, device_id=0): return None, None
    def communication_backend_name(self): return "gloo"
    def visible_devices_envvar(self): return "CUDA_VISIBLE_DEVICES"
    def nvtx_range(self, msg): return contextlib.nullcontext()
    def profiler_start(self): pass
    def profiler_stop(self): pass
    def ray_resource_name(self): return "CPU"
    def ray_resource_options(self, num_gpus): return {"num_cpus": 0}
    def ray_noset_envvars(self): return []
    def is_ipc_supported(self): return False
    def cudart(self): return None


def register_engine():
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

    EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(FSDPEngineWithLMHead)
