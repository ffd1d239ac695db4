"""tandem_sync.server, without a server: what a model's directory asks for, staged by a trainer in another process.

Run by scripts/python_check.sh; exit code 1 when anything differs.
"""
import fcntl
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import types

import torch
import tandem_sync
from tandem_sync.server.receiver import Receiver
from tandem_sync.server.staging import Staging, layout

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}
WEIGHTS = {"lm_head.weight": torch.full((5, 4), 9.0), "model.embed_tokens.weight": torch.arange(20.0).view(5, 4),
           "model.norm.weight": torch.arange(3.0), "model.steps": torch.arange(2)}


def write_directory(folder, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def config(dtype, tied):
    return types.SimpleNamespace(revision=None, dtype=dtype,
                                 hf_text_config=types.SimpleNamespace(tie_word_embeddings=tied))


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def check_layout(folder):
    slots = layout(str(folder), config(torch.bfloat16, tied=True))
    expect([slot.name for slot in slots] == [name for name in WEIGHTS if name != "lm_head.weight"], "a tied head is staged")
    expect([slot.dtype for slot in slots] == [torch.bfloat16, torch.bfloat16, torch.int64],
           "weights follow the dtype that is computed in, and nothing else does")
    expect(all(slot.offset % 64 == 0 for slot in slots), "slots are not aligned")
    expect(slots[1].offset >= slots[0].offset + slots[0].bytes(), "slots overlap")
    untied = layout(str(folder), config(torch.float32, tied=False))
    expect([slot.name for slot in untied] == list(WEIGHTS) and untied[0].dtype == torch.float32, "an untied head is left out")
    return slots


def trainer(address, version):
    """In another process, as a trainer is."""
    weights = {name: tensor for name, tensor in WEIGHTS.items() if name != "lm_head.weight"}
    with tandem_sync.Session(engines=[address]) as sync:
        sync.publish({name: tensor + version if tensor.is_floating_point() else tensor for name, tensor in weights.items()})
        sync.push(version=version)


def start_trainer(address, version):
    return subprocess.run([sys.executable, __file__, address, str(version)], capture_output=True, text=True, timeout=120)


def refuses_foreign_files(slots):
    """A client names the path that the other workers open: only what the first one could have made is mapped."""
    size = slots[-1].offset + slots[-1].bytes()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "file").write_bytes(bytes(size))
        os.mkfifo(folder / "fifo")
        unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
        os.ftruncate(unsealed, size)
        short = os.memfd_create("short", os.MFD_ALLOW_SEALING)
        os.ftruncate(short, size - 1)
        fcntl.fcntl(short, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        before = len(os.listdir("/proc/self/fd"))
        for path in (folder / "file", folder / "fifo", folder / "nothing", folder, "/dev/zero", "/proc/self/mem",
                     f"/proc/self/fd/{unsealed}", f"/proc/self/fd/{short}"):
            try:
                Staging(slots, str(path))
                expect(False, f"{path} was mapped")
            except (ValueError, OSError) as error:
                expect(str(path) in str(error), f"{path}: {error}")
        expect(len(os.listdir("/proc/self/fd")) == before, "a refused file stays open")
        os.close(unsealed)
        os.close(short)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_directory(folder, WEIGHTS)
        slots = check_layout(folder)
    staging = Staging(slots)
    receiver = Receiver(staging, "vllm")
    expect(receiver.staged == 0, "something is staged before anything came")
    for version in (3, 4):
        done = start_trainer(receiver.address, version)
        expect(done.returncode == 0, f"a trainer's push: {done.stderr}")
        expect(receiver.staged == version, "the version that came is not staged")
        for views in (staging.tensors(), Staging(slots, staging.path).tensors()):  # of this worker, and of another
            for tensor_name, tensor in views:
                wanted = WEIGHTS[tensor_name] + (version if tensor.is_floating_point() else 0)
                expect(torch.equal(tensor, wanted.to(tensor.dtype)), f"{tensor_name} of version {version}")
    refuses_foreign_files(slots)
    receiver.take(4)
    done = start_trainer(receiver.address, 5)
    expect(done.returncode == 1 and "version 4 is being loaded" in done.stderr, f"a push into what is taken: {done.stderr}")
    try:
        receiver.take(4)
        expect(False, "a version was taken twice")
    except tandem_sync.Error as error:
        expect("taken already" in str(error), str(error))
    receiver.give_back()
    receiver.close()
    receiver.close()
    staging.close()
    print("staging and receiver: ok")


if len(sys.argv) > 2:
    trainer(sys.argv[1], int(sys.argv[2]))
else:
    main()
