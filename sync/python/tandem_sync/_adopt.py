"""Moves parameters into memory that engines can open, under the modules and optimizers that hold them."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable
from typing import Any

from ._errors import InvalidError
from ._fsdp import fsdp_params, named_parameters

_new_capsule = c.pythonapi.PyCapsule_New
_new_capsule.restype = c.py_object
_new_capsule.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]

NewRegion = Callable[[int, bool], int]
"""bytes, versioned → the address of a DLPack struct"""


class Region:
    """A region by DLPack's protocol, which takes it over."""

    def __init__(self, size: int, new_region: NewRegion) -> None:
        self._size, self._new_region = size, new_region

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, **_: Any) -> Any:
        versioned = max_version is not None and max_version[0] >= 1
        name = b"dltensor_versioned" if versioned else b"dltensor"
        return _new_capsule(self._new_region(self._size, versioned), name, None)


def new_block(torch: Any, like: Any, shape: tuple[int, ...], new_region: NewRegion) -> Any:
    """A tensor of `shape` and like's dtype, in a region of its own."""
    count = 1
    for size in shape:
        count *= size
    size = max(count * like.element_size(), 1)
    flat = torch.from_dlpack(Region(size, new_region))
    return flat[: count * like.element_size()].view(like.dtype).view(shape)


class Adopted:
    """The parameters of a model and their blocks."""

    def __init__(self, model: Any, new_region: NewRegion) -> None:
        import torch

        self._torch, self._model = torch, model
        self._new_region = new_region
        self._blocks: dict[int, Any] = {}  # by id of the parameter
        self._parameters: dict[int, Any] = {}
        for name, parameter in named_parameters(model):
            if self._local(parameter).device.type != "cpu":
                raise InvalidError(f"parameter '{name}' is on {self._local(parameter).device}: only the CPU's memory is "
                                   "adopted; a GPU's is opened where it is", 1)
        self.settle()

    @staticmethod
    def _local(parameter: Any) -> Any:
        local = getattr(parameter, "_local_tensor", None)
        return parameter.data if local is None else local

    def settle(self) -> None:
        """Moves whatever does not lie in its block: at first everything, later what was loaded or converted."""
        padded = {id(one.sharded_param): one for one in fsdp_params(self._model.modules())}
        with self._torch.no_grad():
            for _, parameter in named_parameters(self._model):
                self._settle(parameter, padded.get(id(parameter)))

    def move(self) -> None:
        """Moves everything into new blocks: those that there are belong to a session that is closed."""
        self._blocks.clear()
        self.settle()

    def _settle(self, parameter: Any, fsdp: Any) -> None:
        local = self._local(parameter)
        data = fsdp._sharded_param_data if fsdp is not None else local
        block = self._blocks.get(id(parameter))
        if block is not None and block.data_ptr() == local.data_ptr() == data.data_ptr() and block.dtype == local.dtype:
            return
        shape = tuple(local.shape) if fsdp is None else tuple(fsdp.padded_sharded_param_size)
        if block is None or tuple(block.shape) != shape or block.dtype != local.dtype:
            block = new_block(self._torch, local, shape, self._new_region)
            self._blocks[id(parameter)] = block
            self._parameters[id(parameter)] = parameter  # keeps the id its own
            block.zero_()
        inside = block
        if tuple(local.shape) != shape:
            inside = block.narrow(fsdp.fsdp_placement.dim, 0, local.shape[fsdp.fsdp_placement.dim])
        inside.copy_(local)
        if hasattr(parameter, "_local_tensor"):
            parameter._local_tensor = inside
        else:
            parameter.data = inside
        if fsdp is not None:
            fsdp._sharded_param_data = block.view(-1)
