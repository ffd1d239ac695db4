"""The weight-transfer engine that runs in each worker of a vLLM server started with the backend `tandem`.

    init            the first worker opens a receiver over staging memory (once)      the server generates
    (a trainer stages a version there, which is verified)                             the server generates
    start           nothing                                                           the server generates
    update          all take the staged version, then each loads it, whole            paused
    finish          gives the staging memory back                                     paused

A failure of any worker's before `update` has begun to load leaves the model as it was; one after that is remembered
(`state`) until a later update has brought a whole version.

What fails is told by `state` and not raised: vLLM's executor stops reading at the first worker that raises, and every later
call would be given what the others answered to the call before.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.parallel_state import get_world_group
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.logger import init_logger
from vllm.v1.worker.worker_base import WorkerBase

from tandem_sync.server.agreement import all_together, each_alone
from tandem_sync.server.receiver import Receiver, open_receiver, whereabouts
from tandem_sync.server.staging import Slot, Staging, layout

from .reload import load

PROTOCOL = 1
logger = init_logger(__name__)


@dataclass
class TandemInitInfo(WeightTransferInitInfo):
    protocol: int


@dataclass
class TandemUpdateInfo(WeightTransferUpdateInfo):
    version: int
    memory: str  # of the first worker (`state`)


class TandemWeightTransferEngine(WeightTransferEngine[TandemInitInfo, TandemUpdateInfo]):
    init_info_cls = TandemInitInfo
    update_info_cls = TandemUpdateInfo
    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
        super().__init__(config, vllm_config, device, model)
        self._model_path = self.model_config.model  # vLLM's own reload may name another one later
        self._staging: Staging | None = None
        self._receiver: Receiver | None = None  # the first worker's
        self._whole = True  # the model holds one version
        self._version = 0  # that it was given last; 0: what it was started with
        self._note = ""
        self._load_ms = 0.0
        self._open = False  # between start and finish
        self._failure = ""  # of the last init or update
        WorkerBase.tandem_state = _tandem_state  # where /collective_rpc finds it

    def state(self, note: str | None = None) -> dict[str, Any]:
        """`note`: what a trainer leaves for its successor; None: as it was."""
        if isinstance(note, str):
            self._note = note
        where, failure = whereabouts(self._receiver)
        return {"protocol": PROTOCOL, "rank": self.parallel_config.rank, **where,
                "memory": self._staging.path if self._staging else "", "whole": self._whole, "version": self._version,
                "note": self._note, "load_ms": self._load_ms, "open": self._open, "failure": self._failure or failure}

    def init_transfer_engine(self, init_info: TandemInitInfo) -> None:
        self._failure = each_alone(lambda: self._init(init_info))

    def start_weight_update(self) -> None:
        self._open = True

    def receive_weights(self, update_info: TandemUpdateInfo) -> None:
        if not self._all_take(update_info):
            self._give_back()
            return
        self._failure = each_alone(lambda: self._load(update_info.version))

    def finish_weight_update(self) -> None:
        self._open = False
        self._give_back()

    def shutdown(self) -> None:
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None
        self._forget_staging()

    def _init(self, init_info: TandemInitInfo) -> None:
        if init_info.protocol != PROTOCOL:
            raise ValueError(f"the trainer speaks protocol {init_info.protocol} of this plug-in, which speaks {PROTOCOL}")
        if not self._is_first():
            return
        if self._receiver is None:
            started = time.perf_counter()
            self._staging, self._receiver = open_receiver("vllm", self._layout())
            logger.info("Tandem receives versions of %d tensors at %s; staging memory made in %.2f s",
                        len(self._staging.slots), self._receiver.address, time.perf_counter() - started)
        self._receiver.give_back()  # what an update that failed elsewhere has left taken

    def _all_take(self, update_info: TandemUpdateInfo) -> bool:
        """Replicas (data parallelism) are not told of each other's failures: the server may reach one of them alone."""
        if self.parallel_config.data_parallel_size > 1:
            self._failure = each_alone(lambda: self._take(update_info))
            return not self._failure
        group = get_world_group()
        failures = all_together(lambda: self._take(update_info), group)
        self._failure = failures[group.rank_in_group]
        return not any(failures)

    def _take(self, update_info: TandemUpdateInfo) -> None:
        if self._is_first():
            if self._receiver is None:
                raise RuntimeError("update before init: POST /init_weight_transfer_engine first")
            self._receiver.take(update_info.version)
        elif self._staging is None or self._staging.path != update_info.memory:
            self._forget_staging()
            self._staging = Staging(self._layout(), update_info.memory)

    def _load(self, version: int) -> None:
        assert self._staging is not None
        started = time.perf_counter()
        self._whole = False
        try:
            load(self.model, self.model_config, self._staging.tensors())
        except BaseException:
            self._give_back()
            raise
        self._whole = True
        self._version = version
        self._load_ms = (time.perf_counter() - started) * 1000

    def _give_back(self) -> None:
        if self._receiver is not None:
            self._receiver.give_back()

    def _layout(self) -> list[Slot]:
        return layout(self._model_path, self.model_config)

    def _is_first(self) -> bool:
        return self.parallel_config.rank == 0 and self.parallel_config.data_parallel_index == 0

    def _forget_staging(self) -> None:
        if self._staging is not None:
            self._staging.close()
            self._staging = None


def _tandem_state(worker: Any, note: str | None = None, *_: Any, **__: Any) -> dict[str, Any]:
    """Never raises: vLLM would answer every later call with what is left of this one."""
    try:
        return worker.weight_transfer_engine.state(note)  # type: ignore[no-any-return]
    except Exception as error:
        logger.exception("Tandem: this worker's state cannot be told")
        return {"protocol": PROTOCOL, "rank": -1, "receiver": "", "host": "", "data_port": 0, "memory": "", "whole": False,
                "version": 0, "note": "", "load_ms": 0.0, "open": False, "failure": f"{type(error).__name__}: {error}"}
