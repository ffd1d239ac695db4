"""What a rank holds of a tensor, whichever library made it: address, dtype, shapes, mesh and placements."""

from __future__ import annotations

import ctypes as c
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ._errors import InvalidError
from ._library import Mesh_, Placement_, Tensor_

DTYPES = {"float32": 0, "bfloat16": 1, "int32": 2, "int64": 3, "uint8": 4, "float8_e4m3fn": 5, "int8": 6, "float16": 7}
CPU, CUDA = 1, 2


@dataclass(frozen=True)
class Placement:
    """How one mesh axis holds a tensor. Made by Replicate, Shard's placement helpers or read from a DTensor.

    >>> tandem_sync.Placement(kind=1, dim=0) == tandem_sync.Placement(1)
    True
    """

    kind: int = 0
    """0 replicate, 1 shard, 2 strided shard"""
    dim: int = 0
    split_factor: int = 1


def Replicate() -> Placement:
    """Every rank of the axis holds the same.

    >>> tandem_sync.Replicate().kind
    0
    """
    return Placement()


def StridedShard(dim: int, split_factor: int) -> Placement:
    """Cut into `split_factor` chunks first, and each of them over the axis: what FSDP makes of a dim that tensor
    parallelism, further in, has cut already.

    >>> tandem_sync.StridedShard(0, split_factor=2)
    Placement(kind=2, dim=0, split_factor=2)
    """
    return Placement(2, dim, split_factor)


@dataclass(frozen=True)
class Mesh:
    """Ranks in a grid, row-major: `ranks` are the session's, by default 0, 1, ….

    >>> tandem_sync.Mesh((2, 2)).ranks
    (0, 1, 2, 3)
    """

    sizes: tuple[int, ...]
    ranks: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.ranks:
            object.__setattr__(self, "ranks", tuple(range(prod(self.sizes))))
        if len(self.ranks) != prod(self.sizes):
            raise InvalidError(f"a mesh of {self.sizes} has {prod(self.sizes)} ranks, not {len(self.ranks)}", 1)

    def ascends(self, dim: int) -> bool:
        """Whether ranks grow along `dim`, as they do in a process group of torch's, whatever the mesh.

        >>> tandem_sync.Mesh((2, 2), (1, 0, 3, 2)).ascends(0), tandem_sync.Mesh((2, 2), (1, 0, 3, 2)).ascends(1)
        (True, False)
        """
        stride = prod(self.sizes[dim + 1:])
        last = self.sizes[dim] - 1
        return all(self.ranks[at] < self.ranks[at + stride] for at in range(len(self.ranks) - stride)
                   if at // stride % self.sizes[dim] != last)


@dataclass
class Shard:
    """This rank's piece of a tensor, for trainers that do not have PyTorch's DTensor: `local` is a tensor of torch's or an
    array of numpy's, row-major, cut by torch.chunk's rule. Used as a placement, Shard.of(dim) cuts that dim.

    >>> import numpy
    >>> half = tandem_sync.Shard(numpy.zeros((2, 3), "float32"), (4, 3), tandem_sync.Mesh((2,)), [tandem_sync.Shard.of(0)])
    >>> half.global_shape
    (4, 3)
    """

    local: Any
    global_shape: tuple[int, ...]
    mesh: Mesh
    placements: Sequence[Placement]

    @staticmethod
    def of(dim: int) -> Placement:
        """The placement that cuts `dim`.

        >>> tandem_sync.Shard.of(1)
        Placement(kind=1, dim=1, split_factor=1)
        """
        return Placement(1, dim)


@dataclass(frozen=True)
class Whole:
    """A tensor that every rank holds in full, with the same values; `publish` takes plain tensors as this.

    >>> import numpy
    >>> tandem_sync.Whole(numpy.ones(3, "float32")).local.shape
    (3,)
    """

    local: Any


@dataclass
class Described:
    """A tensor as the C library is told of it. `keep` owns the memory."""

    name: str
    address: int
    dtype: int
    device: tuple[int, int]
    global_shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    mesh: Mesh | None
    placements: tuple[Placement, ...]
    keep: Any


def is_elsewhere(value: Any) -> bool:
    """Whether it is a DTensor on a mesh that this rank is no part of, as another pipeline stage's: others publish it."""
    return hasattr(value, "device_mesh") and value.device_mesh.get_coordinate() is None


def address_of(value: Any) -> int:
    """Where this rank's piece lies now, or 0; cheap, for it is asked before every push."""
    local = value.local if isinstance(value, (Whole, Shard)) else getattr(value, "_local_tensor", value)
    if hasattr(local, "data_ptr") and str(local.layout) == "torch.strided":  # others have no address
        return int(local.data_ptr())
    array = getattr(local, "__array_interface__", None)
    return int(array["data"][0]) if array is not None else 0


def describe(name: str, value: Any, meshes: dict[int, Mesh]) -> Described:
    """Raises InvalidError naming a tensor that cannot be published. `meshes` remembers torch's, by id, for the next call."""
    if "\0" in name:
        raise InvalidError(f"the name {name!r} has a zero byte", 1)
    if isinstance(value, Whole):
        return describe(name, value.local, meshes)
    if isinstance(value, Shard):
        found = _memory(name, value.local)
        found.global_shape, found.mesh = tuple(value.global_shape), value.mesh
        found.placements = tuple(value.placements)
        return found
    if hasattr(value, "_local_tensor") and hasattr(value, "placements"):
        return _dtensor(name, value, meshes)
    return _memory(name, value)


def to_c(tensors: list[Described]) -> Any:
    """As the C library takes them. Raises InvalidError naming a tensor whose shapes or placements do not fit its mesh."""
    meshes: dict[Mesh, Any] = {}
    raw = (Tensor_ * len(tensors))()
    for to, one in zip(raw, tensors):
        to.size, to.name, to.data, to.dtype = c.sizeof(Tensor_), one.name.encode(), one.address or None, one.dtype
        to.device_type, to.device_id, to.ndim = one.device[0], one.device[1], len(one.global_shape)
        if len(one.local_shape) != len(one.global_shape):
            raise InvalidError(f"tensor '{one.name}' is {one.local_shape} here and {one.global_shape} in all", 1)
        to.global_shape = (c.c_int64 * len(one.global_shape))(*one.global_shape)
        to.local_shape = (c.c_int64 * len(one.local_shape))(*one.local_shape)
        if one.mesh is None:
            continue
        if len(one.placements) != len(one.mesh.sizes):
            raise InvalidError(f"tensor '{one.name}': {len(one.placements)} placements on a mesh of {one.mesh.sizes}", 1)
        if one.mesh not in meshes:
            sizes = (c.c_int32 * len(one.mesh.sizes))(*one.mesh.sizes)
            ranks = (c.c_int32 * len(one.mesh.ranks))(*one.mesh.ranks)
            meshes[one.mesh] = Mesh_(c.sizeof(Mesh_), len(one.mesh.sizes), sizes, ranks)
        to.mesh = c.pointer(meshes[one.mesh])
        placements = (Placement_ * len(one.placements))(*[Placement_(p.kind, p.dim, p.split_factor, 0) for p in one.placements])
        to.placements = placements
    return raw  # ctypes keeps what its pointers lead to


def _memory(name: str, value: Any) -> Described:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.layout != torch.strided or not value.is_contiguous():
            raise InvalidError(f"tensor '{name}' is not contiguous: publish a contiguous one", 1)
        if value.is_neg():  # its memory holds the opposite
            raise InvalidError(f"tensor '{name}' is a negated view: publish resolve_neg() of it", 1)
        if value.device.type not in ("cpu", "cuda"):
            raise InvalidError(f"tensor '{name}' is on {value.device}: only the CPU and CUDA are known", 1)
        device = (CPU, 0) if value.device.type == "cpu" else (CUDA, value.device.index or 0)
        kind, address, shape = str(value.dtype).removeprefix("torch."), value.data_ptr(), tuple(value.shape)
    elif hasattr(value, "__array_interface__"):
        if hasattr(value, "mask"):
            raise InvalidError(f"array '{name}' is masked: publish filled() of it", 1)
        if not value.flags["C_CONTIGUOUS"]:
            raise InvalidError(f"array '{name}' is not row-major: publish numpy.ascontiguousarray of it", 1)
        device, kind = (CPU, 0), str(value.dtype)
        address, shape = value.__array_interface__["data"][0], tuple(value.shape)
    else:
        raise InvalidError(f"'{name}' is a {type(value).__name__}: neither a tensor of torch's nor an array", 1)
    if kind not in DTYPES:
        raise InvalidError(f"tensor '{name}' is {kind}: known are {', '.join(DTYPES)}", 1)
    return Described(name, address, DTYPES[kind], device, shape, shape, None, (), value)


def _dtensor(name: str, value: Any, meshes: dict[int, Mesh]) -> Described:
    found = _memory(name, value._local_tensor)
    key = id(value.device_mesh)
    if key not in meshes:
        ranks = value.device_mesh.mesh  # torch works it out anew each time
        meshes[key] = Mesh(tuple(ranks.shape), tuple(int(rank) for rank in ranks.flatten().tolist()))
    found.mesh = meshes[key]
    found.placements = tuple(_placement(name, one) for one in value.placements)
    for dim, placement in enumerate(found.placements):
        if placement.kind != 0 and not found.mesh.ascends(dim):  # collectives go by the group, local shapes by the mesh
            raise InvalidError(f"tensor '{name}' is cut over dim {dim} of a mesh whose ranks do not ascend there, "
                               f"{found.mesh.ranks}: which of them holds which part, PyTorch says in two ways; make a mesh "
                               "of ascending ranks", 1)
    found.global_shape = tuple(value.shape)
    return found


def _placement(name: str, placement: Any) -> Placement:
    factor = getattr(placement, "split_factor", None)
    if factor is not None:
        return Placement(2, placement.dim, factor)
    if placement.is_shard():
        return Placement(1, placement.dim)
    if placement.is_replicate():
        return Placement()
    raise InvalidError(f"tensor '{name}' is {placement}: reduce it before publishing", 1)
