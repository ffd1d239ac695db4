"""libtandem_sync.so by ctypes: the structs of tandem_sync.h and one checked call."""

from __future__ import annotations

import ctypes as c
import os
from functools import lru_cache
from typing import Any

from ._errors import DeadlineError, Error, InvalidError, SyncError

ABI_VERSION = 1
INVALID, DEADLINE, SYNC_FAILED = 1, 5, 8


class Error_(c.Structure):
    _fields_ = [("size", c.c_size_t), ("status", c.c_int32), ("rank", c.c_int32), ("bucket", c.c_int32),
                ("phase", c.c_char_p), ("peer", c.c_char_p), ("message", c.c_char_p)]


ALL_GATHER = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p)


class Group_(c.Structure):
    _fields_ = [("size", c.c_size_t), ("rank", c.c_int32), ("world_size", c.c_int32), ("all_gather", ALL_GATHER),
                ("context", c.c_void_p)]


class Options_(c.Structure):
    _fields_ = [("size", c.c_size_t), ("engines", c.POINTER(c.c_char_p)), ("engine_count", c.c_size_t),
                ("mode", c.c_char_p), ("deadline_s", c.c_double), ("bucket_bytes", c.c_size_t), ("depth", c.c_int32),
                ("rollback", c.c_int32), ("in_flight", c.c_char_p), ("key", c.c_char_p)]


class Placement_(c.Structure):
    _fields_ = [("kind", c.c_int32), ("dim", c.c_int32), ("split_factor", c.c_int32), ("reserved", c.c_int32)]


class Mesh_(c.Structure):
    _fields_ = [("size", c.c_size_t), ("ndim", c.c_int32), ("sizes", c.POINTER(c.c_int32)),
                ("ranks", c.POINTER(c.c_int32))]


class Tensor_(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("data", c.c_void_p), ("dtype", c.c_int32),
                ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32),
                ("global_shape", c.POINTER(c.c_int64)), ("local_shape", c.POINTER(c.c_int64)),
                ("mesh", c.POINTER(Mesh_)), ("placements", c.POINTER(Placement_))]


class Report_(c.Structure):
    _fields_ = [("size", c.c_size_t), ("version", c.c_int64), ("paused_ms", c.c_double), ("transfer_ms", c.c_double),
                ("prepare_ms", c.c_double), ("speed_of_light_ms", c.c_double), ("bytes", c.c_uint64),
                ("bytes_moved", c.c_uint64), ("buckets", c.c_int32), ("mode", c.c_char_p)]


P = c.POINTER
FUNCTIONS: dict[str, list[Any]] = {
    "td_last_error_details": [P(Error_)],
    "td_session_open": [P(Options_), P(Group_), P(c.c_void_p)],
    "td_session_close": [c.c_void_p],
    "td_session_publish": [c.c_void_p, P(Tensor_), c.c_size_t],
    "td_session_config": [c.c_void_p, c.c_char_p],
    "td_session_compared": [c.c_void_p, P(c.c_int32)],
    "td_session_region": [c.c_void_p, c.c_size_t, c.c_int32, P(c.c_void_p)],
    "td_session_push": [c.c_void_p, c.c_int64, P(Report_)],
    "td_session_push_async": [c.c_void_p, c.c_int64, P(c.c_void_p)],
    "td_push_wait": [c.c_void_p, c.c_double, P(Report_)],
    "td_push_abort": [c.c_void_p, c.c_char_p],
    "td_push_free": [c.c_void_p],
    "td_session_check": [c.c_void_p, P(c.c_int32), c.c_char_p, c.c_size_t],
    "td_session_finite": [c.c_void_p, P(c.c_int32), c.c_char_p, c.c_size_t],
    "td_session_speed_of_light": [c.c_void_p, P(c.c_double)],
}


def path() -> str:
    """TANDEM_SYNC_LIBRARY, or the library that came with the package."""
    given = os.environ.get("TANDEM_SYNC_LIBRARY")
    return given or os.path.join(os.path.dirname(__file__), "lib", "libtandem_sync.so")


@lru_cache(maxsize=1)
def library() -> c.CDLL:
    try:
        found = c.CDLL(path())
    except OSError as error:
        raise Error(f"{error}; name libtandem_sync.so in TANDEM_SYNC_LIBRARY") from None
    found.td_abi_version.restype = c.c_uint32
    found.td_abi_version.argtypes = []
    version = found.td_abi_version()
    if version != ABI_VERSION:
        raise Error(f"{path()} speaks version {version} of the C ABI, this package {ABI_VERSION}")
    for name, arguments in FUNCTIONS.items():
        function = getattr(found, name)
        function.restype = c.c_int
        function.argtypes = arguments
    return found


def abi_version() -> int:
    """The version of the C ABI that the library speaks.

    >>> tandem_sync.abi_version()
    1
    """
    return int(library().td_abi_version())


def call(name: str, *arguments: Any) -> None:
    """Calls a function of the library; raises what it reports. Other Python threads run meanwhile."""
    status = getattr(library(), name)(*arguments)
    if status == 0:
        return
    details = Error_(size=c.sizeof(Error_))
    library().td_last_error_details(c.byref(details))
    kind = {INVALID: InvalidError, DEADLINE: DeadlineError, SYNC_FAILED: SyncError}.get(status, Error)
    raise kind(details.message.decode(errors="replace"), status, rank=details.rank if details.rank >= 0 else None,
               phase=details.phase.decode(), peer=details.peer.decode(),
               bucket=details.bucket if details.bucket >= 0 else None)
