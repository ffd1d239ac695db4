"""Tandem's sync in TRL's trainers, for vLLM servers that run beside them (`vllm_mode="server"`, VLLM_SERVER_DEV_MODE=1).

    import tandem_sync.trl
    tandem_sync.trl.install()                          # GRPO, RLOO, Distillation: before the trainer is made
    trainer = GRPOTrainer(..., args=GRPOConfig(use_vllm=True, vllm_mode="server"))

    transfer = tandem_sync.trl.WeightTransfer("vllm://127.0.0.1:8000")
    trainer = AsyncGRPOTrainer(..., weight_transfer=transfer)          # AsyncDistillationTrainer, too

Every sync is a version that the server tells (`GET /weight_info`), whole or not there: where a push fails TRL raises, and the
server goes on with the version from before. Nothing of TRL is imported before it is asked for.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from ._addresses import url_host
from ._errors import Error, InvalidError
from ._group import Group
from ._push import Report
from ._session import Session

OLDEST = (1, 16)
TRAINERS = ("grpo_trainer", "rloo_trainer", "distillation_trainer")
CHECKPOINT_FILE = "tandem_sync.json"  # in TRL's checkpoints: the version that its weights were pushed as


class WeightTransfer:
    """TRL's WeightTransferProtocol: the argument `weight_transfer` of AsyncGRPOTrainer and AsyncDistillationTrainer.

    engines: a URL or several ("vllm://HOST:PORT"). in_flight: what becomes of requests that the server works on; "keep", as
    TRL itself does, lets them go on with the new weights. wait: seconds for the server to come up. deadline: of each phase of
    a push. The first version is the one after the server's.
    """

    def __init__(self, engines: str | Sequence[str], *, in_flight: str = "keep", deadline: float = 120.0,
                 wait: float = 240.0) -> None:
        self.engines = [engines] if isinstance(engines, str) else list(engines)
        self.version = 0
        self.report: Report | None = None  # of the last push
        self._options: dict[str, Any] = dict(deadline=deadline, in_flight=in_flight)
        self._wait = wait
        self._session: Session | None = None

    def init_weight_transfer(self) -> None:
        if self._session is None:
            self.version = max(self.version, _await_version(self.engines, self._wait))
            self._session = Session(self.engines, group=_alone(), rollback=True, **self._options)

    def pause(self) -> None:
        """The push pauses the server when all is staged."""

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        self.init_weight_transfer()
        assert self._session is not None
        self._session.fill(iterator)
        self.report = self._session.push(version=self.version + 1)
        self.version = self.report.version

    def resume(self) -> None:
        """The push has resumed it."""

    def destroy(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


class Installed:
    """What `install` has put in place, until `uninstall`; a context manager."""

    def __init__(self, undo: list[Callable[[], None]]) -> None:
        self._undo = undo

    def uninstall(self) -> None:
        global _installed
        while self._undo:
            self._undo.pop()()
        if _installed is self:
            _installed = None

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.uninstall()


_installed: Installed | None = None


def install(engines: str | Sequence[str] | None = None, *, in_flight: str = "wait", deadline: float = 120.0) -> Installed:
    """Trainers of TRL that are made from now on, with `use_vllm=True, vllm_mode="server"`, sync by Tandem. Other modes are left
    alone. engines: URLs; by default the server that the trainer's arguments name. Again: what is installed stays.

    FSDP2 hands over its shards, nothing is gathered; DDP its replica; FSDP1, ZeRO-3 and PEFT what TRL's own iterator gathers or
    merges. Metrics: perf/tandem_paused_ms and its like. Raises InvalidError where TRL is older than 1.16.
    """
    global _installed
    if _installed is not None:
        return _installed
    _require_trl()
    generation = importlib.import_module("trl.generation.vllm_generation")
    urls = [engines] if isinstance(engines, str) else None if engines is None else list(engines)
    ours = _generation_class(generation, urls, dict(in_flight=in_flight, deadline=deadline))
    undo: list[Callable[[], None]] = []
    theirs = generation.VLLMGeneration
    for name in TRAINERS:
        with contextlib.suppress(ImportError):
            importlib.import_module(f"trl.trainer.{name}")
    # Experimental trainers that are imported already have the name too; later ones take it from where it is defined.
    for module in [m for name, m in sorted(sys.modules.items()) if name == "trl" or name.startswith("trl.")]:
        if vars(module).get("VLLMGeneration") is theirs:
            module.VLLMGeneration = ours  # type: ignore[attr-defined]
            undo.append(lambda module=module: setattr(module, "VLLMGeneration", theirs))  # type: ignore[misc]
    base = importlib.import_module("trl.trainer.base_trainer")._BaseTrainer
    undo.append(_watch_trainers(base))
    _installed = Installed(undo)
    return _installed


def _require_trl() -> None:
    try:
        version = importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError:
        raise InvalidError("TRL is not installed: pip install 'trl>=1.16'", 1) from None
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        raise InvalidError(f"TRL {version} is installed, and this needs 1.16 or later", 1)


def _generation_class(module: Any, engines: list[str] | None, options: dict[str, Any]) -> type:
    """A VLLMGeneration whose weights go by a Session. Everything else is TRL's."""

    class TandemClient(module.VLLMClient):  # type: ignore[misc]
        def init_communicator(self, device: Any = 0) -> None:
            """No NCCL group: weights do not come this way."""

    class TandemGeneration(module.VLLMGeneration):  # type: ignore[misc]
        def _init_vllm(self) -> None:
            self.tandem = _Sync(self, engines, options)
            theirs = module.VLLMClient
            module.VLLMClient = TandemClient
            try:
                super()._init_vllm()
            finally:
                module.VLLMClient = theirs

        def sync_weights(self) -> None:
            if self.mode == "server":
                self.tandem.sync()
            else:
                super().sync_weights()

    return TandemGeneration


class _Sync:
    """One trainer's session and versions, on every rank. It is opened at the first sync: the model is sharded by then."""

    def __init__(self, generation: Any, engines: list[str] | None, options: dict[str, Any]) -> None:
        self.generation, self.options = generation, options
        self.engines = engines
        self.version = 0  # of the last push; before: what a checkpoint says
        self.trainer: Any = None
        self.session: Session | None = None

    def sync(self) -> None:
        main = self.generation.accelerator.is_main_process
        gathered = _gathered_by_trl(self.generation)
        if self.session is None:
            self._open(main, gathered)
        if gathered and main:
            assert self.session is not None
            self.session.fill(self.generation._iter_named_params())
        elif gathered:
            for _ in self.generation._iter_named_params():  # its gathers are collective
                pass
        report = None if self.session is None else self.session.push(version=self.version + 1)
        self.version += 1
        if main and report is not None:
            self._tell(report)

    def _open(self, main: bool, gathered: bool) -> None:
        """On every rank; what TRL gathers is pushed by the first alone."""
        from accelerate.utils import broadcast_object_list

        engines = self.engines or [_engine_of(self.generation)]
        found = [_await_version(engines, self.generation.server_timeout) if main else 0]
        broadcast_object_list(found)
        self.version = max(self.version, found[0])
        if gathered and not main:
            return
        self.session = Session(engines, group=_alone() if gathered else None, rollback=True, **self.options)
        if not gathered:
            self.session.publish(self.generation.model)

    def _tell(self, report: Report) -> None:
        metrics = getattr(self.trainer, "_metrics", {}).get("train")
        if metrics is None:
            return
        for key in ("version", "paused_ms", "transfer_ms", "prepare_ms", "bytes_moved"):
            metrics[f"perf/tandem_{key}"].append(float(getattr(report, key)))


def _gathered_by_trl(generation: Any) -> bool:
    """Whether no rank holds what could be published as it is: adapters that must be merged, flat or partitioned parameters."""
    from accelerate.utils import is_peft_model

    if is_peft_model(generation.model) or generation._dist.is_zero3:
        return True
    return bool(generation._dist.is_fsdp) and not any(hasattr(p, "placements") for p in generation.model.parameters())


def _engine_of(generation: Any) -> str:
    url = generation.server_base_url or f"http://{url_host(generation.server_host)}:{generation.server_port}"
    if not url.startswith("http://"):
        raise InvalidError(f"{url}: weights go to http://HOST:PORT; name the engines in install(engines=…)", 1)
    host = url.removeprefix("http://").rstrip("/")
    return "vllm://" + host.replace("0.0.0.0", "127.0.0.1")


def _watch_trainers(base: type) -> Callable[[], None]:
    """Trainers get a callback that keeps the version in their checkpoints. Returns what undoes it."""
    before, inherited = base.__init__, "__init__" not in vars(base)  # type: ignore[misc]

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        before(self, *args, **kwargs)
        self.add_callback(_checkpoint_callback(self))

    base.__init__ = init  # type: ignore[misc]

    def undo() -> None:
        if inherited:
            del base.__init__  # type: ignore[misc]
        else:
            base.__init__ = before  # type: ignore[misc]

    return undo


def _checkpoint_callback(trainer: Any) -> Any:
    from transformers import TrainerCallback

    def sync() -> _Sync | None:
        found = getattr(getattr(trainer, "vllm_generation", None), "tandem", None)
        if found is not None:
            found.trainer = trainer
        return found

    def file(args: Any, state: Any) -> str:
        return os.path.join(args.output_dir, f"checkpoint-{state.global_step}", CHECKPOINT_FILE)

    class Versions(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            found = sync()
            if found is None or state.global_step == 0:
                return
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(file(args, state)) as text:
                found.version = max(found.version, int(json.load(text)["version"]))

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            found = sync()
            if found is not None and state.is_world_process_zero and os.path.isdir(os.path.dirname(file(args, state))):
                with open(file(args, state), "w") as text:
                    json.dump({"version": found.version}, text)

    return Versions()


def _alone() -> Group:
    return Group(0, 1, lambda mine: [mine])


def _await_version(engines: Iterable[str], wait: float) -> int:
    """The highest version that a server says it has, once all answer. 0: none that a push brought."""
    highest = 0
    end = time.monotonic() + wait
    for engine in engines:
        scheme, _, host = engine.partition("?")[0].partition("://")
        if not scheme.startswith("vllm"):
            continue  # the session asks
        while True:
            try:
                request = urllib.request.Request(f"http://{host}/weight_info")
                if key := os.environ.get("VLLM_API_KEY"):
                    request.add_header("Authorization", f"Bearer {key}")
                with urllib.request.urlopen(request, timeout=10) as answer:
                    said = json.load(answer)["weight_version"]
                break
            except urllib.error.HTTPError as error:
                hint = "; start it with VLLM_SERVER_DEV_MODE=1" if error.code == 404 else ""
                raise Error(f"{engine}: GET /weight_info: HTTP {error.code}{hint}") from None
            except OSError as error:
                if time.monotonic() > end:
                    raise Error(f"{engine} does not answer after {wait:.0f} s: {error}") from None
                time.sleep(0.2)
        highest = max(highest, int(said) if said.isdigit() else 0)
    return highest
