"""Opens what a push to sglang+tensor:// sends with SGLang's own code, out of an unpacked wheel.

Its protocol structs, MultiprocessingSerializer (with its list of what a pickle may name), FlattenedTensorBucket and
patch of PyTorch's reductions are the real ones; the rest of the package, and CUDA, are stubs. The tensors must equal
those of the directory, and lie in the memory that they were staged in. Exit code 1 when anything differs.
"""
import argparse
import base64
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import mmap
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import types

import torch
from safetensors.torch import load_file, save_file
from transformers.utils import import_utils

REAL = ["utils", "weight_sync", "environ", "managers.io_struct"]  # of sglang.srt
PACKAGES = ["sglang", "sglang.srt", "sglang.srt.managers"]  # whose own __init__ is left out
ELSEWHERE = ["torchvision", "tvm_ffi", "partial_json_parser", "aiohttp", "dill", "IPython"]


class Anything(type):
    """Stands for any class or function that is named and never used."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})

    def __call__(cls, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else Anything("result", (), {})

    def __getitem__(cls, key):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __bool__(cls):
        return False


class Stub(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    @staticmethod
    def covers(name, roots):
        return any(name == root or name.startswith(root + ".") for root in roots)

    def find_spec(self, name, path, target=None):
        real = self.covers(name, ["sglang.srt." + module for module in REAL])
        if real or not self.covers(name, ["sglang"] + ELSEWHERE):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


def import_sglang(wheel, dependencies):
    sys.path.append(str(dependencies))
    import msgspec

    import_utils.is_torchvision_available()  # remembered, before there are stubs
    import_utils.is_vision_available()
    for name in PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = [str(wheel / name.replace(".", "/"))]
        sys.modules[name] = package
    sys.meta_path.insert(0, Stubs())
    msgspec.msgpack.Decoder = Anything("Decoder", (), {})  # of the server's processes: would want all of its types
    srt = types.SimpleNamespace()
    srt.common = importlib.import_module("sglang.srt.utils.common")
    srt.bucket = importlib.import_module("sglang.srt.weight_sync.tensor_bucket")
    srt.structs = importlib.import_module("sglang.srt.managers.io_struct")
    srt.patch = importlib.import_module("sglang.srt.utils.patch_torch")
    for module in vars(srt).values():
        assert module.__file__.startswith(str(wheel)), module
    return srt


def make_directory(folder):
    torch.manual_seed(3)
    tensors = {
        "model.embed_tokens.weight": torch.randn(257, 48),
        "model.layers.0.self_attn.q_proj.weight": torch.randn(48, 48).bfloat16(),
        "model.layers.0.self_attn.q_proj.bias": torch.randn(7).bfloat16(),
        "model.layers.0.mlp.down_proj.weight": torch.randn(48, 33).bfloat16(),
        "model.norm.weight": torch.randn(48),
        "model.scale": torch.tensor(1.5),
        "model.größe": torch.randn(3, 1, 5),
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text("{}")
    return load_file(folder / "model.safetensors")


def reconstructed(srt, opened):
    """As the server does it."""
    metadata = [srt.bucket.FlattenedTensorMetadata(name=one.name, shape=one.shape, dtype=one.dtype,
                                                   start_idx=one.start_idx, end_idx=one.end_idx, numel=one.numel)
                for one in opened["metadata"]]
    flat = opened["flattened_tensor"]
    return dict(srt.bucket.FlattenedTensorBucket(flattened_tensor=flat, metadata=metadata).reconstruct_tensors())


def compare(found, wanted, what):
    assert found.keys() == wanted.keys(), (what, found.keys() ^ wanted.keys())
    for name, tensor in wanted.items():
        one = found[name]
        assert one.dtype == tensor.dtype and one.shape == tensor.shape and torch.equal(one, tensor), (what, name)
    print(f"  {what}: {len(wanted)} tensors equal", flush=True)


def payloads_of(srt, body):
    """The body as the server's route takes it."""
    from pydantic import TypeAdapter

    request = TypeAdapter(srt.structs.UpdateWeightsFromTensorReqInput).validate_json(json.dumps(body))
    known = request.__struct_fields__
    assert set(body) <= set(known), set(body) - set(known)
    assert request.load_format == "flattened_bucket" and request.flush_cache is False
    return request.serialized_named_tensors


def check_shared_memory(srt, said, wanted):
    payloads = payloads_of(srt, said["body"])
    assert len(payloads) == 2
    for rank, payload in enumerate(payloads):
        opened = srt.common.MultiprocessingSerializer.deserialize(payload)
        compare(reconstructed(srt, opened), wanted, f"shared memory, rank {rank}")
    name, tensor = next(iter(reconstructed(srt, opened).items()))
    before = tensor.flatten()[0].item()
    with open(said["file"], "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        at = 64 + next(one.start_idx for one in opened["metadata"] if one.name == name)
        memory[at] ^= 1
        assert tensor.flatten()[0].item() != before, "the tensors are copies"
        memory[at] ^= 1
    del opened, tensor
    assert os.path.exists(said["file"]), "a reader removed it"


def check_cuda(srt, said, wanted):
    """Without a GPU: what would open the handle is asked what it was given, and gives the staged bytes."""
    asked = []

    def new_shared_cuda(cls, device, handle, size, offset, counter, slot, event, sync):
        asked.append((device, handle, size, offset, counter, slot, event, sync))
        assert all(isinstance(one, bytes) for one in (handle, counter, event)) and sync is False
        data = pathlib.Path(said["file"]).read_bytes()
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).untyped_storage()

    torch.UntypedStorage._new_shared_cuda = classmethod(new_shared_cuda)
    torch.cuda._lazy_init = lambda: None
    torch.cuda.device_count = lambda: 2
    uuids = ["ffffffff-0000-1111-2222-333344445555", "0a1b2c3d-0000-1111-2222-333344445555"]
    torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(uuid=uuids[index])
    srt.patch.monkey_patch_torch_reductions()
    (payload,) = payloads_of(srt, said["cuda"])
    opened = srt.common.MultiprocessingSerializer.deserialize(payload)
    handle = bytes((i * 7 + 1) % 256 for i in range(64))
    assert asked == [(1, handle, said["bytes"], 5 << 32, b"/tandem-counters", 3, bytes(64), False)], asked
    compare(reconstructed(srt, opened), wanted, "CUDA, by a stub of its driver")


def check_that_pickles_are_held_to_a_list(srt):
    class Harmful:
        def __reduce__(self):
            return os.getpid, ()

    data = io.BytesIO()
    pickle.dump(Harmful(), data)
    try:
        srt.common.MultiprocessingSerializer.deserialize(data.getvalue())
    except RuntimeError:
        return
    raise AssertionError("this is not SGLang's own unpickler")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=pathlib.Path, required=True, help="an unpacked wheel of sglang")
    parser.add_argument("--dependencies", type=pathlib.Path, required=True, help="folder of what it imports")
    parser.add_argument("--program", required=True, help="sglang_payload")
    options = parser.parse_args()
    srt = import_sglang(options.wheel.resolve(), options.dependencies)
    check_that_pickles_are_held_to_a_list(srt)
    before = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory() as folder:
        wanted = make_directory(pathlib.Path(folder))
        with subprocess.Popen([options.program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            said = json.loads(process.stdout.readline())
            assert base64.b64encode(base64.b64decode(said["cuda"]["serialized_named_tensors"][0])).decode() \
                == said["cuda"]["serialized_named_tensors"][0]
            check_shared_memory(srt, said, wanted)
            check_cuda(srt, said, wanted)
            process.stdin.close()
            assert process.wait() == 0
    left = {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("tandem")}
    assert not left, left
    print("  ok")


main()
