"""An actor's side: what it sends, as which version, by which sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .._group import Group
from .._push import Report
from .._session import Session
from .handover import full_tensors, shards

Layout = list[tuple[str, tuple[int, ...], str, str]]
"""name, shape, dtype, and the name whose tensor it is; "": its own"""


class HandedOver(NamedTuple):
    """What one sync sends."""

    items: Any  # pairs of a name and a tensor
    layout: Layout
    sharded: bool


class Sender:
    """An actor's sessions: one to the rollout workers' receivers, one to each server outside."""

    def __init__(self, engines: list[str], deadline: float, in_flight: str) -> None:
        self._outside, self._deadline, self._in_flight = engines, deadline, in_flight
        self._sessions: dict[str, Session] = {}  # by the server's URL; "": the receivers'
        self._receivers: list[str] = []
        self._full_layout: Layout | None = None
        self._sharded = False
        self._last = 0  # version

    def hand_over(self, weights: Any, sharded: bool) -> HandedOver:
        if sharded:
            items, aliases = shards(weights)
            layout = [_entry(name, tensor) for name, tensor in items]
            of = {name: (shape, dtype) for name, shape, dtype, _ in layout}
            layout += [(name, *of[first], first) for name, first in aliases.items()]
            return HandedOver(items, layout, True)
        full: Iterator[tuple[str, Any]] = full_tensors(weights)
        if self._full_layout is None:  # nobody can receive before all have come once
            kept = [(name, tensor.detach().to("cpu", copy=True)) for name, tensor in full]
            self._full_layout = [_entry(name, tensor) for name, tensor in kept]
            full = iter(kept)
        return HandedOver(full, self._full_layout, False)

    def push(self, handed: HandedOver, receivers: list[str], key: str, step: int | None) -> Report:
        """Into the receivers first: their version is the rollouts'. On all actors where shards are handed over."""
        version = self._last + 1 if step is None else max(step, 1)
        if handed.sharded != self._sharded:
            self.forget()
        for url, session in self._sessions.items():
            if version <= self._last or (not url and receivers != self._receivers):
                session.reconnect([url] if url else receivers, rollback=True)
        self._receivers, self._sharded = receivers, handed.sharded
        report = self._push("", handed.items, version, key)
        for url in self._outside:
            self._push(url, handed.items if handed.sharded else self._sessions[""].filled, version, None)
        self._last = version
        return report

    def _push(self, url: str, items: Any, version: int, key: str | None) -> Report:
        if url not in self._sessions:
            self._sessions[url] = Session(
                [url] if url else self._receivers, deadline=self._deadline, rollback=True, key=key,
                group=None if self._sharded else Group(0, 1, lambda mine: [mine]), in_flight=self._in_flight if url else "wait")
        session = self._sessions[url]
        if self._sharded or url:
            session.publish(items)
        else:
            session.fill(items)
        return session.push(version=version)

    def forget(self) -> None:
        """After a failure: the next sync begins anew."""
        for session in self._sessions.values():
            session.close()
        self._sessions, self._receivers, self._full_layout = {}, [], None


def _entry(name: str, tensor: Any) -> tuple[str, tuple[int, ...], str, str]:
    return name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), ""
