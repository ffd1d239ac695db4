"""verl's checkpoint engine `tandem`: one object in each actor and in each rollout worker.

A sync of verl's is: prepare everywhere → build_topology in the driver → init_process_group everywhere → send_weights and
receive_weights at once → finalize everywhere. The actors' rank 0 makes the board (_board.py), whose handle comes to the others
by build_topology. The first rollout worker of each host owns staging memory and a receiver over it, which the host's others
map; actors push into the receivers, whole or not there, and the workers read what was committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import ray
import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from .._board import Board
from .._errors import DeadlineError, Error, InvalidError
from .._push import Report
from ..server.receiver import here
from .handover import drain
from .inbox import Inbox
from .sender import Sender


@CheckpointEngineRegistry.register("tandem")
class TandemCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    """Keywords, of checkpoint_engine.engine_kwargs.tandem: engines, URLs of servers outside verl that get every version after
    the rollout workers have it ("vllm://HOST:PORT"); deadline, seconds for each phase of a push; wait, seconds for the others of
    a sync to come; in_flight, as Session's."""

    def __init__(self, bucket_size: int = 0, is_master: bool = False, engines: Sequence[str] = (), deadline: float = 120.0,
                 wait: float = 600.0, in_flight: str = "wait", **unknown: Any) -> None:
        if unknown:
            raise InvalidError(f"engine_kwargs.tandem has no '{min(unknown)}': engines, deadline, wait, in_flight", 1)
        if isinstance(engines, str):
            raise InvalidError("engine_kwargs.tandem.engines is a list of URLs", 1)
        self.is_master = is_master
        self.report: Report | None = None  # of the last push
        self._deadline, self._wait = deadline, wait
        self._board: Any = None
        self._number = 0  # of the sync
        self._rank, self._rollouts = 0, 0
        self._one_at_a_time = threading.Lock()
        self._sender = Sender(list(engines), deadline, in_flight)
        self._inbox = Inbox()

    def prepare(self) -> dict[str, Any]:
        self._inbox.give_back()
        if not self.is_master:
            return {}
        if self._board is None:
            self._board = ray.remote(num_cpus=0)(Board).remote()
        self._number += 1
        return {"board": self._board, "number": self._number}

    @classmethod
    def build_topology(cls, actor_wg_world_size: int, rollout_world_size: int,
                       metadata: list[dict[str, Any]]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        masters = [one for one in metadata if "board" in one]
        if len(masters) != 1:
            raise InvalidError(f"{len(masters)} of {len(metadata)} workers say that they are the actors' first", 1)

        def of(world_size: int) -> dict[str, list[Any]]:
            return {"rank": list(range(world_size)), "rollouts": [rollout_world_size] * world_size,
                    "board": [masters[0]["board"]] * world_size, "number": [masters[0]["number"]] * world_size}

        return of(actor_wg_world_size), of(rollout_world_size)

    def init_process_group(self, rank: int, rollouts: int, board: Any, number: int) -> None:
        self._rank, self._rollouts, self._board, self._number = rank, rollouts, board, number

    def finalize(self) -> None:
        self._inbox.give_back()

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> dict[str, float]:
        """weights: a generator of full tensors, which each actor runs to its end, or verl's engine, whose shards are pushed.
        Raises what failed; the rollout workers then raise it too, and keep the version before."""
        device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
        report = await asyncio.to_thread(self._send, self._number, weights, global_steps, device)
        if report is None:
            return {}
        self.report = report
        return {"perf/tandem_paused_ms": report.paused_ms, "perf/tandem_transfer_ms": report.transfer_ms,
                "perf/tandem_bytes": float(report.bytes_moved), "perf/tandem_version": float(report.version)}

    def _send(self, number: int, weights: Any, step: int | None, device: int | None) -> Report | None:
        if device is not None:
            torch.cuda.set_device(device)
        with self._one_at_a_time:  # a sync that was given up may still be ending
            sharded = hasattr(weights, "get_per_tensor_param")
            try:
                return self._push(number, weights, step, sharded)
            except BaseException as error:
                self._sender.forget()
                if self.is_master:
                    with contextlib.suppress(Error):
                        self._tell("settle", number, 0, f"{type(error).__name__}: {error}")
                raise
            finally:
                if not sharded:
                    drain(weights)  # the others of this group gather with us

    def _push(self, number: int, weights: Any, step: int | None, sharded: bool) -> Report | None:
        if not sharded and not self.is_master:
            return None
        handed = self._sender.hand_over(weights, sharded)
        host = here()
        if self.is_master:
            self._tell("tell", number, handed.layout, host)
        told = self._tell("receivers", number, self._rollouts, self._wait)
        where = [one["local"] if one["here"] == host else one["tcp"] for one in told["receivers"]]
        report = self._sender.push(handed, where, told["key"], step)
        if self.is_master:
            self._tell("settle", number, report.version, "")
        return report if self.is_master else None

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Views of the staged version, valid until the next sync's `prepare`."""
        number, rank = self._number, self._rank
        host = here()
        asked = await self._ask("join", number, rank, self._rollouts, host, self._wait)
        owner = asked["owner"]
        if owner == rank:
            address = await asyncio.to_thread(self._inbox.open, asked["layout"],
                                              "" if asked["trainer"] == host else asked["key"])
            await self._ask("serve", number, rank, address)
        outcome = await self._ask("outcome", number, owner, self._wait + 10 * self._deadline)
        if owner == rank:
            self._inbox.take(outcome["version"])
        else:
            await asyncio.to_thread(self._inbox.share, asked["layout"], outcome["address"])
        for name, tensor in self._inbox.tensors():
            if self._number != number:
                raise Error("a later sync has begun while this one's weights were being loaded", 4, phase="load")
            yield name, tensor

    def _tell(self, method: str, *arguments: Any) -> dict[str, Any]:
        try:
            return _checked(ray.get(getattr(self._board, method).remote(*arguments)))
        except ray.exceptions.RayActorError as error:
            raise Error(f"the board of the actors' first rank is gone: {error}", 4, phase="connect") from error

    async def _ask(self, method: str, *arguments: Any) -> dict[str, Any]:
        try:
            return _checked(await getattr(self._board, method).remote(*arguments))
        except ray.exceptions.RayActorError as error:
            raise Error("the trainer's first rank is gone", 4, phase="connect") from error


def _checked(answer: Any) -> dict[str, Any]:
    told: dict[str, Any] = answer or {}
    if told.get("failure"):
        kind = DeadlineError if told["late"] else Error
        raise kind(told["failure"], 5 if told["late"] else 4, phase="connect")
    return told
