"""Opens what a push sends to vLLM's backends "ipc", "nccl" and "sparse_nccl" with vLLM's own code: its update structs, its
receivers of packed and of single tensors, its writing of sparse patches, PyTorch's rebuild_cuda_tensor.

A GPU is asked for nothing: what would open an IPC handle notes what it was given and gives the staged bytes, and what
would receive a broadcast takes them from there. Names, dtypes, shapes and values must equal the directory's, handle,
offsets and UUID be as sent. Exit code 1 when anything differs.
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import types
from unittest import mock

os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")

import torch
from safetensors.torch import load_file, save_file
from vllm.distributed.weight_transfer import ipc_engine, nccl_common, nccl_engine, packed_tensor, sparse_nccl_engine
from vllm.model_executor.model_loader.weight_utils import default_weight_loader

UUID = "0a1b2c3d-0000-1111-2222-333344445555"
HANDLE = bytes((i * 7 + 1) % 256 for i in range(64))
GPU = 3  # of the worker, as it counts


def make_directory(folder):
    torch.manual_seed(3)
    tensors = {
        "model.embed_tokens.weight": torch.randn(257, 48).bfloat16(),
        "model.layers.0.self_attn.q_proj.weight": torch.randn(48, 48).bfloat16(),
        "model.layers.0.self_attn.q_proj.bias": torch.randn(7).bfloat16(),
        "model.layers.0.mlp.gate.weight": torch.randn(5, 3),
        "model.layers.0.mlp.down_proj.weight": torch.randn(48, 33).bfloat16(),
        "model.norm.weight": torch.randn(48),
        "model.scale": torch.tensor(1.5),
        "model.größe": torch.randn(3, 1, 5).bfloat16(),
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text("{}")
    return load_file(folder / "model.safetensors")


class Model:
    """Takes what a receiver loads."""

    def __init__(self):
        self.loaded = {}

    def load_weights(self, weights):
        for name, tensor in weights:
            assert name not in self.loaded, name
            self.loaded[name] = tensor.clone()
        return set()


def compare(found, wanted, what):
    assert found.keys() == wanted.keys(), (what, found.keys() ^ wanted.keys())
    for name, tensor in wanted.items():
        one = found[name]
        assert one.dtype == tensor.dtype and one.shape == tensor.shape and torch.equal(one, tensor), (what, name)
    print(f"  {what}: {len(wanted)} tensors equal", flush=True)


class Gpu:
    """Stands for PyTorch's CUDA, as far as handles are opened with it."""

    def __init__(self, memory, offset):
        self.memory, self.offset, self.opened = memory, offset, []

    def new_shared_cuda(self, device, handle, size, offset, counter, slot, event, sync):
        assert (device, handle, counter, slot) == (GPU, HANDLE, b"/tandem-no-counters", 3)
        assert event == bytes(64) and sync is False
        begin = offset - self.offset
        assert 0 <= begin and begin + size <= len(self.memory), (begin, size)
        self.opened.append((begin, size))
        return torch.frombuffer(bytearray(self.memory[begin:begin + size]), dtype=torch.uint8).untyped_storage()

    @contextlib.contextmanager
    def in_place(self):
        opens = classmethod(lambda cls, *arguments: self.new_shared_cuda(*arguments))
        with mock.patch.object(torch.UntypedStorage, "_new_shared_cuda", opens, create=True), \
                mock.patch.object(torch.UntypedStorage, "_release_ipc_counter",
                                  classmethod(lambda cls, *a, **k: None), create=True), \
                mock.patch.object(torch.cuda, "_lazy_init", lambda: None), \
                mock.patch.object(torch.cuda, "get_device_properties",
                                  lambda index: types.SimpleNamespace(uuid=UUID)):
            yield


def worker_engine(kind, **fields):
    """A worker's engine, without the config and the model that a server would give it."""
    engine = kind.__new__(kind)
    engine.model = Model()
    engine.device = types.SimpleNamespace(index=GPU)
    for name, value in fields.items():
        setattr(engine, name, value)
    return engine


def check_ipc(said, wanted, memory):
    gpu = Gpu(memory, said["offset"])
    kind = ipc_engine.IPCWeightTransferEngine
    with gpu.in_place():
        engine = worker_engine(kind, packed=False, _packed_importer=packed_tensor.PackedBufferImporter())
        engine.init_transfer_engine(engine.parse_init_info({"packed": False}))
        engine.receive_weights(engine.parse_update_info(dict(said["unpacked"])))
        compare(engine.model.loaded, wanted, "ipc, tensor by tensor")
        assert len(gpu.opened) == len(wanted), gpu.opened

        gpu.opened.clear()
        engine = worker_engine(kind, packed=False, _packed_importer=packed_tensor.PackedBufferImporter())
        engine.init_transfer_engine(engine.parse_init_info({"packed": True}))
        engine.receive_weights(engine.parse_update_info(dict(said["opening"])))
        assert engine.model.loaded == {} and len(gpu.opened) == 1, gpu.opened
        for update in said["packed"]:
            engine.receive_weights(engine.parse_update_info(dict(update)))
        compare(engine.model.loaded, wanted, f"ipc, packed in {len(said['packed'])}")
        # The first was opened before, and each once.
        assert gpu.opened == [tuple(chunk) for chunk in said["chunks"]], (gpu.opened, said["chunks"])
        engine.shutdown()


def check_refusals(said):
    engine = worker_engine(ipc_engine.IPCWeightTransferEngine, packed=True)
    for update in [said["unpacked"], said["packed"][0], said["opening"]]:
        with mock.patch.object(torch.cuda, "get_device_properties",
                               lambda index: types.SimpleNamespace(uuid="another")):
            info = engine.parse_update_info(dict(update))
            engine.packed = isinstance(info.ipc_handles, dict)
            engine._packed_importer = packed_tensor.PackedBufferImporter()
            try:
                engine.receive_weights(info)
            except ValueError as error:
                assert UUID in str(error), error
                continue
        raise AssertionError("a worker on another GPU took it")
    print("  ipc: a worker on another GPU refuses all three", flush=True)


class Group:
    """Rank 0's broadcasts: the chunks, in their order."""

    def __init__(self, memory, chunks):
        self.memory, self.chunks = memory, list(chunks)

    def broadcast(self, tensor, src, stream=None):
        assert src == 0
        begin, size = self.chunks.pop(0)
        flat = tensor.view(-1).view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)
        assert flat.numel() == size, (flat.numel(), size)
        flat.copy_(torch.frombuffer(bytearray(self.memory[begin:begin + size]), dtype=torch.uint8))


def check_nccl(said, wanted, memory, packed_bytes):
    stream = types.SimpleNamespace(synchronize=lambda: None, wait_event=lambda event: None)
    event = types.SimpleNamespace(record=lambda stream: None)
    init = nccl_common.NCCLWeightTransferInitInfo(
        nccl_unique_id_b64="AAAA" * 42 + "AAA=", rank_offset=1, world_size=2, packed=packed_bytes > 0,
        packed_buffer_size_bytes=packed_bytes, packed_num_buffers=2)
    assert len(init.nccl_unique_id_bytes) == 128
    engine = worker_engine(nccl_engine.NCCLWeightTransferEngine, packed=init.packed,
                           packed_buffer_size_bytes=init.packed_buffer_size_bytes,
                           packed_num_buffers=init.packed_num_buffers, _last_update_info={},
                           model_update_group=Group(memory, said["chunks"]))
    engine.device = torch.device("cpu")
    with mock.patch.object(packed_tensor, "_get_streams", lambda device, count: (stream,) * count), \
            mock.patch.object(torch.accelerator, "current_device_index", lambda: GPU), \
            mock.patch.object(torch.cuda, "current_stream", lambda: stream), \
            mock.patch.object(torch.accelerator, "current_stream", lambda: stream), \
            mock.patch.object(torch, "Event", lambda: event), \
            mock.patch.object(torch.Tensor, "record_stream", lambda tensor, stream: None), \
            mock.patch.object(torch.cuda, "stream", lambda one: contextlib.nullcontext()):
        engine.receive_weights(engine.parse_update_info(dict(said["nccl"])))
    assert engine.model_update_group.chunks == [], "it did not take all chunks"
    compare(engine.model.loaded, wanted, f"nccl, {len(said['chunks'])} broadcasts of {packed_bytes}")


class Parameters:
    """A model that loads as vLLM's do: into parameters that are there, by its own loader."""

    def __init__(self, tensors):
        self.held = {name: torch.nn.Parameter(tensor.clone(), requires_grad=False) for name, tensor in tensors.items()}

    def load_weights(self, weights):
        for name, tensor in weights:
            default_weight_loader(self.held[name], tensor)
        return {name for name, _ in weights}


class Sparse:
    """Rank 0's broadcasts of indices and values, one behind the other."""
    device = torch.device("cpu")

    def __init__(self, memory):
        self.memory, self.at = memory, 0

    def broadcast(self, tensor, src, stream=None):
        size = tensor.numel() * tensor.element_size()
        assert src == 0 and size > 0 and self.at + size <= len(self.memory)
        tensor.view(torch.uint8).copy_(
            torch.frombuffer(bytearray(self.memory[self.at:self.at + size]), dtype=torch.uint8))
        self.at += size


def change_some(tensors, share, folder):
    """Another version beside it, of which that share of the elements differs, some of them in the zero's sign only."""
    folder.mkdir(exist_ok=True)
    old = {}
    for name, tensor in tensors.items():
        drawn = torch.rand(tensor.shape) < share
        other = torch.where(torch.rand(tensor.shape) < 0.3, -tensor, torch.randn(tensor.shape).to(tensor.dtype))
        old[name] = torch.where(drawn, other, tensor)
    save_file(old, folder / "model.safetensors", {"format": "pt"})
    return old


def check_sparse(updates, sent, held, wanted, what):
    kind = sparse_nccl_engine.SparseNCCLWeightTransferEngine
    engine = worker_engine(kind, model_update_group=Sparse(sent))
    engine.model = Parameters(held)
    differ = sum(int((bits(one) != bits(held[name])).sum()) for name, one in wanted.items())
    named = 0
    with mock.patch.object(torch.accelerator, "device_index", lambda index: contextlib.nullcontext()), \
            mock.patch.object(torch.cuda, "current_stream", lambda device=None: None):
        for update in updates:
            engine.start_weight_update()
            engine.receive_weights(engine.parse_update_info(dict(update)))
            engine.finish_weight_update()
            named += sum(update["num_updates_list"])
    assert engine.model_update_group.at == len(sent), "it did not take all that was broadcast"
    for name, tensor in wanted.items():
        assert torch.equal(bits(engine.model.held[name].data), bits(tensor)), (what, name)
    assert named >= differ
    print(f"  sparse_nccl, {what}: {len(updates)} updates of {named} elements ({differ} differ): all bits equal", flush=True)


def bits(tensor):
    return tensor.reshape(-1).view(torch.int16 if tensor.element_size() == 2 else torch.int32)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="vllm_payload")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wanted = make_directory(folder)
        for packed_bytes in (0, 1, 5000, 24672, 1 << 20):
            said = json.loads(subprocess.check_output([options.program, name, str(packed_bytes)]))
            memory = (folder / "memory").read_bytes()
            check_ipc(said, wanted, memory)
            check_nccl(said, wanted, memory, packed_bytes)
        check_refusals(said)
        old = folder / "old"
        for share in (1, 0.5, 0.1, 0.01, 0):
            for packed_bytes in (0, 5000):
                held = change_some(wanted, share, old)
                said = json.loads(subprocess.check_output([options.program, name, str(packed_bytes), str(old)]))
                check_sparse(said["sparse"], (folder / "sparse").read_bytes(), held, wanted, f"{share:.0%} changed")
        said = json.loads(subprocess.check_output([options.program, name, "5000"]))
        check_sparse(said["sparse"], (folder / "sparse").read_bytes(), held, wanted, "a whole version")
    print("  ok")


main()
