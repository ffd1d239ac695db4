"""The memory that versions are staged in: one tensor for each Hugging Face name, whole, in one sealed memory file.

The first worker of a server owns it and receives into it; the others of the same host map it.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import pathlib
import stat
import struct
from typing import Any, NamedTuple

import torch

ALIGNMENT = 64
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
LARGEST_HEADER = 100 << 20
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "I32": torch.int32, "I64": torch.int64, "U8": torch.uint8,
          "F8_E4M3": torch.float8_e4m3fn, "I8": torch.int8, "F16": torch.float16}
CASTS = (torch.float32, torch.bfloat16)  # that a trainer's values are cast between


class Slot(NamedTuple):
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int  # bytes

    def bytes(self) -> int:
        return self.elements() * self.dtype.itemsize

    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


def _header(path: pathlib.Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > LARGEST_HEADER:
            raise ValueError(f"{path}: a header of {length} bytes")
        return json.loads(file.read(length))


def _directory(model: str, revision: str | None) -> pathlib.Path:
    if os.path.isdir(model):
        return pathlib.Path(model)
    from huggingface_hub import snapshot_download

    return pathlib.Path(snapshot_download(model, revision=revision, local_files_only=True))


def layout(model: str, model_config: Any) -> list[Slot]:
    """What a version of `model`, a directory or a name of the hub's, consists of: the tensors of its files, in the dtype
    that it computes in where that is a cast. A head that is tied follows the embedding, whether the files hold one or not."""
    directory = _directory(model, model_config.revision)
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{directory}: no *.safetensors that say which tensors the model has")
    tensors = {name: entry for file in files for name, entry in _header(file).items() if name != "__metadata__"}
    if getattr(model_config.hf_text_config, "tie_word_embeddings", False):
        tensors.pop("lm_head.weight", None)
    sizes: dict[str, int] = {}
    for entry in tensors.values():
        sizes[entry["dtype"]] = sizes.get(entry["dtype"], 0) + entry["data_offsets"][1] - entry["data_offsets"][0]
    most = max(sizes, key=lambda name: sizes[name])
    computes_in = model_config.dtype
    slots, offset = [], 0
    for name, entry in tensors.items():
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None:
            raise ValueError(f"{directory}: tensor '{name}' is {entry['dtype']}, which cannot be received")
        if entry["dtype"] == most and dtype in CASTS and computes_in in CASTS:
            dtype = computes_in
        slot = Slot(name, tuple(entry["shape"]), dtype, offset)
        slots.append(slot)
        offset += -(-slot.bytes() // ALIGNMENT) * ALIGNMENT
    return slots


def _open_staging(path: str, bytes_: int) -> int:
    """Another worker's memory file, where a client may have named the path: sealed, as large as it has to be, this user's."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would wait for its other end
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size != bytes_:
            raise ValueError(f"{path}: no memory of {bytes_} bytes of this user's")
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        except OSError:
            seals = 0  # of a file system that knows none
        if seals & SEALS != SEALS:
            raise ValueError(f"{path}: not sealed, so that it could be cut off under its readers")
        return fd
    except BaseException:
        os.close(fd)
        raise


class Staging:
    """Slots over a memory file. `path`: another worker's; empty: a new one, every page of it touched."""

    def __init__(self, slots: list[Slot], path: str = "") -> None:
        self.slots = slots
        bytes_ = max(slots[-1].offset + slots[-1].bytes(), 1)
        if path:
            self._fd = _open_staging(path, bytes_)
        else:
            self._fd = os.memfd_create("tandem-staging", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self._fd, bytes_)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, SEALS)
        flags = mmap.MAP_SHARED | (0 if path else getattr(mmap, "MAP_POPULATE", 0))
        self._memory = mmap.mmap(self._fd, bytes_, flags=flags)
        self._path = path or f"/proc/{os.getpid()}/fd/{self._fd}"

    @property
    def path(self) -> str:
        """Where other processes of this user open it."""
        return self._path

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """Views, valid until close."""
        return [(slot.name, self._tensor(slot)) for slot in self.slots]

    def _tensor(self, slot: Slot) -> torch.Tensor:
        count = slot.elements()
        if count == 0:
            return torch.empty(slot.shape, dtype=slot.dtype)
        return torch.frombuffer(self._memory, dtype=slot.dtype, offset=slot.offset, count=count).view(slot.shape)

    def close(self) -> None:
        """Gives the memory back once the last view is gone."""
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        try:
            self._memory.close()
        except BufferError:  # views are left, and keep it until they go
            pass
