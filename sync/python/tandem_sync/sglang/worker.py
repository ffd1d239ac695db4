"""A rank of an SGLang server that is given versions by a trainer.

    start      the first rank opens a receiver over staging memory, which the others map
    (a trainer stages a version there, which is verified)                       the server generates
    update     every rank takes the staged version and loads it, whole          no request runs

What one rank meets, all are told of before they go on: SGLang's ranks wait for each other in every step, and one that raised
alone would leave the others waiting. A failure before the first tensor is loaded leaves the model as it was ("refused");
one after that is remembered (`state`) until a later update has brought a whole version.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tandem_sync.server.agreement import all_together
from tandem_sync.server.receiver import Receiver, open_receiver, whereabouts
from tandem_sync.server.staging import Slot, Staging, layout

PROTOCOL = 1
LOADER = "tandem_sync.sglang.load"
# How the answers to an update begin that did not go through (engine_adapter/sglang/server.cpp).
REFUSED = "tandem: nothing was loaded: "
TORN = "tandem: parts of two versions are loaded: "
NOT_FLUSHED = "Weights were updated, but the cache was not flushed because requests are still running or queued."

logger = logging.getLogger(__name__)


class LoadFailed(Exception):
    """On at least one rank; raised on all."""


class Worker:
    def __init__(self, scheduler: Any) -> None:
        from sglang.srt.distributed.parallel_state import get_world_group

        self._scheduler = scheduler
        self._args = scheduler.server_args
        self._model_path = self._args.model_path  # a load from a directory may name another one later
        self._group = get_world_group()
        self._staging: Staging | None = None
        self._receiver: Receiver | None = None  # the first rank's
        self._whole = True  # the model holds one version
        self._stale = False  # and the prefix cache may hold another; no request is served meanwhile
        self._version = 0  # that it was given last; 0: what it was started with
        self._load_ms = 0.0
        self._touched = False  # by the update that is under way
        self._note = 0
        self._failure = self._agree(self._open)  # to start: no update can succeed
        if self._failure:
            logger.error("Tandem can receive no weights: %s", self._failure)

    def state(self) -> dict[str, Any]:
        where, failure = whereabouts(self._receiver)
        return {"protocol": PROTOCOL, **where, "whole": self._whole and not self._stale, "version": self._version,
                "note": self._note, "load_ms": self._load_ms, "failure": self._failure or failure}

    def leave_note(self, note: int) -> None:
        """Of a trainer's for its successor; 0 once the server has been resumed."""
        self._note = note
        self._stale = self._stale and note != 0

    def update(self, original: Callable[..., Any], updates: Any, request: Any) -> Any:
        """SGLang's own update, which calls `load` for each of its models, between a version taken and given back. `request`
        leaves its prefix cache to us: SGLang 0.5.15 ends where it cannot be emptied."""
        from sglang.srt.managers.io_struct import UpdateWeightsFromTensorReqOutput as Answer

        if failure := self._failure or self._agree(lambda: self._take(request.weight_version)):
            self._give_back()
            return Answer(success=False, message=REFUSED + failure)
        self._touched = False
        started = time.perf_counter()
        try:
            with _session(updates):
                answer = original(updates, request)
        except Exception as failed:  # LoadFailed, and what SGLang itself has against the update
            if not self._touched:
                return Answer(success=False, message=f"{REFUSED}{type(failed).__name__}: {failed}")
            self._refuse_requests()
            return Answer(success=False, message=TORN + str(failed))
        finally:
            self._give_back()
        if not answer.success:
            return answer if self._touched else Answer(success=False, message=REFUSED + answer.message)
        self._whole, self._version = True, int(request.weight_version)
        self._load_ms = (time.perf_counter() - started) * 1000
        self._stale = not self._flush(updates)
        return Answer(success=False, message=NOT_FLUSHED) if self._stale else answer

    def _flush(self, updates: Any) -> bool:
        """Empties the prefix cache. A request that has been answered may still be in the batch, which counts as running: the
        batch is let go of. Where others run no request is served until somebody resumes the server: what is cached is of the
        weights from before."""
        if updates.flush_cache(empty_cache=False):
            return True
        was_paused = self._scheduler._engine_paused
        self._refuse_requests()
        if not updates.flush_cache(empty_cache=False):
            return False
        if not was_paused:
            from sglang.srt.managers.io_struct import ContinueGenerationReqInput

            self._scheduler.continue_generation(ContinueGenerationReqInput(torch_empty_cache=False))
        return True

    def _refuse_requests(self) -> None:
        """Until somebody resumes the server, be its trainer dead by then. Requests that have just ended leave its batch,
        without which it would never count as idle again."""
        from sglang.srt.managers.io_struct import PauseGenerationReqInput

        self._scheduler.pause_generation(PauseGenerationReqInput(mode="retract"))

    def load(self, model: torch.nn.Module) -> None:
        if failure := self._agree(lambda: self._load(model)):
            raise LoadFailed(failure)

    def _load(self, model: torch.nn.Module) -> None:
        self._touched = True
        self._whole = False
        assert self._staging is not None
        with torch.no_grad():
            model.load_weights(iter(self._staging.tensors()))

    def _open(self) -> None:
        """The memory's path goes to the other ranks, by which they map it."""
        if self._args.pp_size > 1 or self._args.dp_size > 1:
            raise ValueError("a server with pipeline stages or data-parallel replicas takes no updates from tensors")
        path, failure = "", ""
        if self._is_first():
            try:
                started = time.perf_counter()
                self._staging, self._receiver = open_receiver("sglang", self._layout())
                path = self._staging.path
                logger.info("Tandem receives versions of %d tensors at %s; staging memory made in %.2f s",
                            len(self._staging.slots), self._receiver.address, time.perf_counter() - started)
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
        path, failure = self._from_first((path, failure))
        if failure:
            raise RuntimeError(failure)
        if not self._is_first():
            self._staging = Staging(self._layout(), path)

    def _take(self, version: str | None) -> None:
        number = int(version or "0")
        if self._receiver is not None:
            self._receiver.take(number)

    def _give_back(self) -> None:
        if self._receiver is not None:
            self._receiver.give_back()

    def _layout(self) -> list[Slot]:
        return layout(self._model_path, self._scheduler.model_config)

    def _is_first(self) -> bool:
        return self._group.rank_in_group == 0

    def _agree(self, step: Callable[[], None]) -> str:
        """Every rank's step; what the first that failed says, on all of them. Empty: none did."""
        failures = all_together(step, self._group)
        return next((f"rank {rank}: {failure}" for rank, failure in enumerate(failures) if failure), "")

    def _from_first(self, value: Any) -> Any:
        if self._group.world_size == 1:
            return value
        values = [value]
        torch.distributed.broadcast_object_list(values, src=self._group.ranks[0], group=self._group.cpu_group)
        return values[0]


@contextmanager
def _session(updates: Any) -> Iterator[None]:
    """Servers from 0.5.21 on take tensors between begin and end; here both are one step with the update."""
    if getattr(updates, "_session", "older") is not None:
        yield
        return
    from sglang.srt.managers.io_struct import BeginWeightUpdateReqInput, EndWeightUpdateReqInput

    updates.begin_weight_update(BeginWeightUpdateReqInput(selector="all"))
    try:
        yield
    finally:
        updates.end_weight_update(EndWeightUpdateReqInput())
