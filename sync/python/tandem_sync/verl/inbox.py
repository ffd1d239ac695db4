"""A rollout worker's side: the memory that versions arrive in."""

from __future__ import annotations

from typing import Any

import ray
import torch

from .._addresses import url_host
from ..server.receiver import Receiver, here, open_receiver
from ..server.staging import ALIGNMENT, Slot, Staging


class Inbox:
    """A rollout worker's staging memory: its own, with a receiver over it, or mapped from its host's first worker."""

    def __init__(self) -> None:
        self._layout: Any = None
        self._key = ""  # of trainers of other hosts; empty: there are none
        self._owner = ""  # the address of the receiver whose memory is mapped
        self._staging: Staging | None = None
        self._receiver: Receiver | None = None

    def open(self, layout: Any, key: str) -> dict[str, str]:
        """Where versions of `layout` are received. key: that a trainer of another host shows; empty: it is of this one."""
        if self._receiver is None or (self._layout, self._key) != (layout, key):
            self._close()
            listen = f"{url_host(ray.util.get_node_ip_address())}:0" if key else ""
            self._staging, self._receiver = open_receiver("verl rollout", _slots(layout), data_listen=listen, key=key)
            self._layout, self._key = layout, key
        assert self._staging is not None
        _, port = self._receiver.data_plane()
        tcp = f"tcp://{url_host(ray.util.get_node_ip_address())}:{port}" if port else ""
        return {"here": here(), "local": self._receiver.address, "tcp": tcp, "memory": self._staging.path}

    def share(self, layout: Any, owner: dict[str, str]) -> None:
        """Maps the memory of the receiver that `owner`'s `open` has told."""
        if self._owner != owner["local"] or self._layout != layout:
            self._close()
            self._staging, self._layout, self._owner = Staging(_slots(layout), owner["memory"]), layout, owner["local"]

    def take(self, version: int) -> None:
        assert self._receiver is not None
        self._receiver.take(version)

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        assert self._staging is not None
        own = dict(self._staging.tensors())
        return [(name, own[first or name]) for name, _, _, first in self._layout]

    def give_back(self) -> None:
        if self._receiver is not None:
            self._receiver.give_back()

    def _close(self) -> None:
        if self._receiver is not None:
            self._receiver.close()
        if self._staging is not None:
            self._staging.close()
        self._receiver, self._staging, self._layout, self._owner = None, None, None, ""


def _slots(layout: Any) -> list[Slot]:
    slots, offset = [], 0
    for name, shape, dtype, first in layout:
        if first:
            continue
        slots.append(Slot(name, tuple(shape), getattr(torch, dtype), offset))
        offset += -(-slots[-1].bytes() // ALIGNMENT) * ALIGNMENT
    return slots
