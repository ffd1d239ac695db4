"""checkpoint-engine's own modules, of the unpacked wheel in CHECKPOINT_ENGINE_WHEEL, for a machine without a GPU: what a worker
opens by CUDA IPC is the file CHECKPOINT_ENGINE_BUFFER, and CUDA's calls do nothing. Only the sender's side is left out.
"""
import mmap
import os
import sys
import types

import torch

__path__ = [os.path.join(os.environ["CHECKPOINT_ENGINE_WHEEL"], "checkpoint_engine")]
UUID = "0a1b2c3d-0000-1111-2222-333344445555"
fails = False  # to open


def new_shared_cuda(cls, device, handle, size, offset, counter, slot, event, sync):
    assert (handle, offset, slot, event, sync) == (b"h" * 64, 4096, 0, bytes(64), False), (handle, offset, slot, event)
    assert isinstance(device, int) and isinstance(counter, bytes)
    if fails:
        raise RuntimeError("CUDA error: invalid resource handle")
    with open(os.environ["CHECKPOINT_ENGINE_BUFFER"], "r+b") as file:
        assert os.fstat(file.fileno()).st_size == size
        return torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=torch.uint8).untyped_storage()


torch.UntypedStorage._new_shared_cuda = classmethod(new_shared_cuda)
for name in ("synchronize", "ipc_collect", "empty_cache", "_lazy_init"):
    setattr(torch.cuda, name, lambda *ignored: None)
sys.modules["checkpoint_engine.ps"] = types.SimpleNamespace(ParameterServer=None)
sys.modules.setdefault("loguru", types.SimpleNamespace(logger=None))
if os.path.exists(os.path.join(__path__[0], "device_utils.py")):  # not in 0.1.2
    from checkpoint_engine import device_utils

    device_utils.DeviceManager._detect_device_type = lambda self: "cuda"
if "sglang" in sys.modules:
    from sglang.srt.platforms import current_platform

    type(current_platform).get_device_uuid = lambda self, index: UUID
    torch.cpu.current_device = lambda: 0
