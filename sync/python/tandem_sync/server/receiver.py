"""A receiver of libtandem_sync (tandem_sync.h) over the tensors of a Staging."""

from __future__ import annotations

import ctypes as c
import os
from functools import lru_cache
from typing import Any

import torch
from tandem_sync import _library

from .staging import Slot, Staging

NUMBERS = {torch.float32: 0, torch.bfloat16: 1, torch.int32: 2, torch.int64: 3, torch.uint8: 4, torch.float8_e4m3fn: 5,
           torch.int8: 6, torch.float16: 7}
CPU = 1


class Options_(c.Structure):
    _fields_ = [("size", c.c_size_t), ("engine", c.c_char_p), ("threads", c.c_int32), ("data_listen", c.c_char_p),
                ("key", c.c_char_p)]


FUNCTIONS = {
    "td_host": [c.c_char_p, c.c_size_t],
    "td_receiver_open": [c.POINTER(Options_), c.POINTER(_library.Tensor_), c.c_size_t, c.POINTER(c.c_void_p)],
    "td_receiver_address": [c.c_void_p, c.c_char_p, c.c_size_t],
    "td_receiver_data_plane": [c.c_void_p, c.POINTER(c.c_int32), c.c_char_p, c.c_size_t],
    "td_receiver_staged": [c.c_void_p, c.POINTER(c.c_int64)],
    "td_receiver_take": [c.c_void_p, c.c_int64],
    "td_receiver_give_back": [c.c_void_p],
    "td_receiver_close": [c.c_void_p],
}


@lru_cache(maxsize=1)
def _declare() -> None:
    for name, arguments in FUNCTIONS.items():
        function = getattr(_library.library(), name)
        function.restype = c.c_int
        function.argtypes = arguments


def here() -> str:
    """Equal for processes that can open each other's memory and sockets: the library's name of this host, and the user."""
    _declare()
    text = c.create_string_buffer(256)
    _library.call("td_host", text, len(text))
    return f"{text.value.decode()} {os.geteuid()}"


def open_receiver(engine: str, slots: list[Slot], data_listen: str | None = None,
                  key: str | None = None) -> tuple[Staging, Receiver]:
    """Staging memory for `slots`, which takes a while to be made, and a receiver over it. data_listen, key: as Receiver's;
    None: TANDEM_DATA_LISTEN and TANDEM_API_KEY, where they are in the environment."""
    staging = Staging(slots)
    listen = os.environ.get("TANDEM_DATA_LISTEN", "") if data_listen is None else data_listen
    try:
        return staging, Receiver(staging, engine, data_listen=listen,
                                 key=os.environ.get("TANDEM_API_KEY", "") if key is None else key)
    except BaseException:
        staging.close()
        raise


def whereabouts(receiver: Receiver | None) -> tuple[dict[str, Any], str]:
    """Where a trainer comes to `receiver`, and why that cannot be told; empty: it can."""
    found: dict[str, Any] = {"receiver": "", "host": "", "data_port": 0}
    if receiver is None:
        return found, ""
    try:
        host, port = receiver.data_plane()
        return {"receiver": receiver.address, "host": host, "data_port": port}, ""
    except Exception as error:
        return found, f"{type(error).__name__}: {error}"


class Receiver:
    def __init__(self, staging: Staging, engine: str, threads: int = 0, data_listen: str = "", key: str = "") -> None:
        """engine: what trainers are told that this is. data_listen: "HOST:PORT", where trainers of other hosts, who know `key`, connect over TCP; empty: nowhere."""
        _declare()
        views = staging.tensors()
        described = (_library.Tensor_ * len(views))()
        for entry, (name, tensor) in zip(described, views):
            shape = (c.c_int64 * max(tensor.dim(), 1))(*tensor.shape)
            entry.size = c.sizeof(_library.Tensor_)
            entry.name = name.encode()
            entry.data = tensor.data_ptr() or None
            entry.dtype = NUMBERS[tensor.dtype]
            entry.device_type = CPU
            entry.ndim = tensor.dim()
            entry.global_shape = shape
        self._staging = staging  # the memory must outlive the receiver
        self._handle = c.c_void_p()
        options = Options_(size=c.sizeof(Options_), engine=engine.encode(), threads=threads,
                           data_listen=data_listen.encode() or None, key=key.encode() or None)
        _library.call("td_receiver_open", c.byref(options), described, len(views), c.byref(self._handle))

    @property
    def address(self) -> str:
        text = c.create_string_buffer(256)
        _library.call("td_receiver_address", self._handle, text, len(text))
        return text.value.decode()

    def data_plane(self) -> tuple[str, int]:
        """The name of this host, equal for whoever can share memory here, and the port of data_listen; 0: none."""
        port, host = c.c_int32(), c.create_string_buffer(256)
        _library.call("td_receiver_data_plane", self._handle, c.byref(port), host, len(host))
        return host.value.decode(), port.value

    @property
    def staged(self) -> int:
        """The version that lies whole in the staging memory; 0: none."""
        version = c.c_int64()
        _library.call("td_receiver_staged", self._handle, c.byref(version))
        return version.value

    def take(self, version: int) -> None:
        _library.call("td_receiver_take", self._handle, version)

    def give_back(self) -> None:
        _library.call("td_receiver_give_back", self._handle)

    def close(self) -> None:
        handle, self._handle = self._handle, c.c_void_p()
        if handle:
            _library.call("td_receiver_close", handle)
