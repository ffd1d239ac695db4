"""Where the actors and rollout workers of verl meet before a sync: a small actor of Ray's, which carries names, shapes and
addresses; the weights go by Tandem. Apart from verl/, because its process, made at the first sync, imports neither verl nor torch.

    first actor   tell(layout)  ─►  receivers()  ─►  (fills and pushes)  ─►  settle(version | failure)
    rollout       join(here)    ─►  (the first worker of a host opens a receiver)  serve(address)  ─►  outcome()

Each call names its sync; one of a sync that a later one has overtaken is answered with a failure at once. Failures are
answered, not raised: Ray would wrap them in a page of text.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Sync:
    """What is known of one sync."""

    number: int
    layout: Any = None
    trainer: str = ""  # where the master is
    failure: str = ""
    hosts: dict[int, str] = field(default_factory=dict)  # where each rollout worker is
    addresses: dict[int, dict[str, str]] = field(default_factory=dict)  # of the receivers, by the worker that owns one
    version: int = 0  # that they hold; 0: not yet


class Board:
    def __init__(self) -> None:
        self.key = secrets.token_hex(32)  # of receivers that trainers of another host connect to
        self._sync = Sync(0)
        self._changed = asyncio.Condition()

    async def tell(self, number: int, layout: Any, trainer: str) -> None:
        def write(sync: Sync) -> None:
            sync.layout, sync.trainer = layout, trainer

        await self._write(number, write)

    async def receivers(self, number: int, rollouts: int, wait: float) -> dict[str, Any]:
        """{"receivers": [{"here", "memory", "tcp"}…]}, once every rollout worker has come and one of each host serves."""
        answer = await self._until(
            number, lambda sync: len(sync.hosts) == rollouts and len(sync.addresses) == len(set(sync.hosts.values())), wait,
            lambda sync: self._absent(sync, rollouts) or "no receiver was opened by " + _named(self._silent(sync)))
        return {**answer, "key": self.key,
                "receivers": [self._sync.addresses[rank] for rank in sorted(self._sync.addresses)]}

    async def settle(self, number: int, version: int, failure: str) -> None:
        """The version that the receivers hold, or why they do not."""

        def write(sync: Sync) -> None:
            sync.version, sync.failure = version, failure

        await self._write(number, write)

    async def join(self, number: int, rank: int, rollouts: int, host: str, wait: float) -> dict[str, Any]:
        """{"layout", "trainer", "key", "owner"}: what is received, from where, and the worker whose receiver those of `rank`'s
        host share; once all have come."""
        await self._write(number, lambda sync: sync.hosts.update({rank: host}))
        answer = await self._until(
            number, lambda sync: sync.layout is not None and len(sync.hosts) == rollouts, wait,
            lambda sync: self._absent(sync, rollouts) or "the trainer's first rank did not say what it sends")
        owner = min((other for other, its in self._sync.hosts.items() if its == host), default=rank)
        return {**answer, "layout": self._sync.layout, "trainer": self._sync.trainer, "key": self.key, "owner": owner}

    async def serve(self, number: int, rank: int, address: dict[str, str]) -> None:
        """address: {"here": where it is, "local": its address there, "tcp": over the network, "memory": its staging file}."""
        await self._write(number, lambda sync: sync.addresses.update({rank: address}))

    async def outcome(self, number: int, owner: int, wait: float) -> dict[str, Any]:
        """{"version", "address"}: which version lies in whose memory, once it does."""
        answer = await self._until(number, lambda sync: sync.version > 0, wait,
                                   lambda sync: "the trainer's push did not end")
        return {**answer, "version": self._sync.version, "address": self._sync.addresses.get(owner, {})}

    async def _write(self, number: int, write: Callable[[Sync], Any]) -> None:
        """The first word of a sync ends the one before."""
        async with self._changed:
            if number > self._sync.number:
                self._sync = Sync(number)
            if number == self._sync.number:
                write(self._sync)
            self._changed.notify_all()

    async def _until(self, number: int, ready: Callable[[Sync], bool], wait: float,
                     late: Callable[[Sync], str]) -> dict[str, Any]:
        """{"failure": why it is not ready; empty: it is, "late": somebody is}."""

        def over() -> bool:
            return self._sync.number > number or (self._sync.number == number
                                                  and (bool(self._sync.failure) or ready(self._sync)))

        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(over), wait)
            except asyncio.TimeoutError:
                return {"failure": f"{late(self._sync)} within {wait:g} s", "late": True}
            return {"failure": "a later sync has begun" if self._sync.number > number else self._sync.failure, "late": False}

    @staticmethod
    def _absent(sync: Sync, rollouts: int) -> str:
        ranks = [rank for rank in range(rollouts) if rank not in sync.hosts]
        return f"{_named(ranks)} did not come" if ranks else ""

    @staticmethod
    def _silent(sync: Sync) -> list[int]:
        """Workers on whose hosts nobody serves."""
        served = {sync.hosts[rank] for rank in sync.addresses if rank in sync.hosts}
        return [rank for rank, host in sorted(sync.hosts.items()) if host not in served]


def _named(ranks: list[int]) -> str:
    names = ", ".join(str(rank) for rank in ranks[:8]) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rollout worker{'s' if len(ranks) > 1 else ''} {names}"
