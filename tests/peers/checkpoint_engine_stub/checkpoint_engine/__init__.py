"""checkpoint-engine's own modules, of the unpacked wheel in CHECKPOINT_ENGINE_WHEEL, for a machine without a GPU: what a worker
opens by CUDA IPC is the file CHECKPOINT_ENGINE_BUFFER or, without it, memory of an emulated GPU (tests/emulated_gpu/export.cpp);
CUDA's calls do nothing. Only the sender's side is left out.
"""
import mmap
import os
import struct
import sys
import types

import torch

__path__ = [os.path.join(os.environ["CHECKPOINT_ENGINE_WHEEL"], "checkpoint_engine")]
BUFFER = os.environ.get("CHECKPOINT_ENGINE_BUFFER")
UUID = "0a1b2c3d-0000-1111-2222-333344445555" if BUFFER else "gpu 0"
fails = False  # to open


def opened(handle, size, offset):
    if BUFFER:
        assert (handle, offset) == (b"h" * 64, 4096), (handle, offset)
        assert os.stat(BUFFER).st_size == size
        return BUFFER, size, 0
    _, allocated, _, pid, fd = struct.unpack_from("<QQQii", handle)
    return f"/proc/{pid}/fd/{fd}", allocated, offset


def new_shared_cuda(cls, device, handle, size, offset, counter, slot, event, sync):
    assert (slot, event, sync) == (0, bytes(64), False), (slot, event)
    assert isinstance(device, int) and isinstance(counter, bytes) and len(handle) == 64
    if fails:
        raise RuntimeError("CUDA error: invalid resource handle")
    path, bytes_, begin = opened(handle, size, offset)
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), bytes_)
    return torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=begin).untyped_storage()


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
