"""A standing sync between this trainer's ranks and its engines."""

from __future__ import annotations

import ctypes as c
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from os import getpid
from types import TracebackType
from typing import Any, Literal, overload

from ._adopt import Adopted, new_block
from ._config import config_text
from ._errors import Error, InvalidError
from ._fsdp import named_parameters, require_no_copies
from ._group import Group
from ._library import Options_, Report_, call
from ._names import hf
from ._push import Push, Report, report_of
from ._shard import CUDA, Described, Mesh, address_of, describe, is_elsewhere, to_c

Names = Callable[[str], "str | None"] | Mapping[str, str]


class Session:
    """A standing sync. Every rank makes one and calls the same methods in the same order.

    >>> with tandem_sync.Session(engines=[ENGINE], mode="gather", deadline=30) as sync:
    ...     sync.publish(model)
    ...     report = sync.push(version=next_version())
    ...     sync.check()
    True
    >>> report.mode
    'gather'
    """

    def __init__(self, engines: Sequence[str], mode: str = "auto", deadline: float = 30.0, *, group: Group | None = None,
                 bucket_bytes: int = 0, depth: int = 0, rollback: bool = False, in_flight: str = "wait",
                 key: str | None = None) -> None:
        """Joins the ranks and connects to `engines`: URLs, a rank of an engine each; rank 0's count.

        mode: "auto" takes direct where engines can open all weights' memory (`adopt`), else gather; or gather, direct,
        alias, delta. deadline: seconds that each phase of a push may take. group: torch.distributed's default group where
        that is initialized, else one rank. bucket_bytes, depth: 0 is chosen for this machine. rollback: the first version
        need not be above those that the engines have had. in_flight: what becomes of requests that a vLLM or SGLang server works
        on: "wait" for their end, "abort", or "keep": they go on with the new weights, and their answers are of several versions.
        key: that engines ask for; None: TANDEM_API_KEY.
        """
        self._handle = c.c_void_p()
        self._closed = False
        self._process = getpid()
        self._under_way: Push | None = None
        self._items: Callable[[], list[tuple[str, Any]]] | None = None
        self._published: list[Described] = []
        self._places: list[tuple[str, int]] = []  # names and addresses of what is published
        self._adopted: list[Adopted] = []
        self._planned = False  # published once, to these engines
        self._config: str | None = None  # what is published computes
        self._filled: dict[str, Any] | None = None  # memory of the session's, by the names that fill() was given
        self._group = group
        self._options: dict[str, Any] = dict(
            mode=mode.encode(), deadline_s=deadline, bucket_bytes=bucket_bytes, depth=depth, rollback=int(rollback),
            in_flight=in_flight.encode(), key=None if key is None else key.encode())
        self._open(engines)

    def _open(self, engines: Sequence[str]) -> None:
        if isinstance(engines, str):
            raise InvalidError("engines is a list of URLs", 1)
        urls = (c.c_char_p * max(len(engines), 1))(*[url.encode() for url in engines])
        options = Options_(size=c.sizeof(Options_), engines=urls, engine_count=len(engines), **self._options)
        group = self._group or Group.current()
        failures: list[BaseException] = []
        raw = group._to_c(failures) if group is not None else None
        try:
            call("td_session_open", c.byref(options), c.byref(raw) if raw is not None else None, c.byref(self._handle))
        except Error as error:
            raise error from (failures[0] if failures else None)

    def reconnect(self, engines: Sequence[str], *, rollback: bool = False) -> None:
        """Goes on with other engines, as replicas come and go: what is published and adopted stays so, what `fill` was given
        has to be given again. rollback: the next version need not be above those that these have had. On every rank. Where it
        fails there is no engine, until a `reconnect` has succeeded.

        >>> sync = tandem_sync.Session(engines=[ENGINE])
        >>> sync.publish(model)
        >>> report = sync.push(version=next_version())
        >>> sync.reconnect([ENGINE])
        >>> report = sync.push(version=next_version())
        >>> sync.check()
        True
        >>> sync.close()
        """
        self._check_idle(connected=False)
        self._disconnect()
        if self._filled is not None:
            self._filled = self._items = None
        self._planned = False
        self._options["rollback"] = int(rollback)
        self._open(engines)
        try:
            for adopted in self._adopted:
                adopted.move()
            if self._items is not None:
                self._plan()
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        handle, self._handle = self._handle, c.c_void_p()
        call("td_session_close", handle)

    def publish(self, weights: Any, names: Names = hf, config: Any = None) -> None:
        """Says what is pushed: once, on every rank. `weights` is a torch module, whose parameters are meant (tied ones once;
        FSDP2's sharded ones, also while gathered copies stand in their place), or an iterable of (name, tensor), where a tensor
        is one of torch's, a DTensor, an array of numpy's or a tandem_sync.Shard. `names` turns names into Hugging Face's: a
        function, whose None leaves a tensor out, or a mapping. `config` is the model's config.json: a mapping, a configuration
        of transformers', a path; a model of transformers' brings its own. An engine that says that it computes something else
        is refused, naming key and both values; see `compared`.

        >>> import numpy
        >>> sync = tandem_sync.Session(engines=[ENGINE])
        >>> try:
        ...     sync.publish([("model.norm.weight", numpy.ones(3, "float32"))])
        ... except tandem_sync.SyncError as error:
        ...     print(error.phase)
        plan
        >>> try:
        ...     sync.publish({"model.norm.weight": [1.0, 1.0]})
        ... except tandem_sync.InvalidError as error:
        ...     print(error)
        'model.norm.weight' is a list: neither a tensor of torch's nor an array
        >>> sync.close()
        """
        self._check_idle()
        if hasattr(weights, "named_parameters"):
            self._items = lambda: list(named_parameters(weights))
        else:
            kept = list(weights.items() if isinstance(weights, Mapping) else weights)
            for item in kept:
                if not isinstance(item, Sequence) or len(item) != 2 or not isinstance(item[0], str):
                    raise InvalidError(f"publish takes pairs of a name and a tensor, not a {type(item).__name__}", 1)
            require_no_copies(kept)
            self._items = lambda: kept
        self._names = names
        if not self._planned:
            self._config = config_text(config, weights)
        self._plan()

    def _plan(self) -> None:
        if not self._planned:
            call("td_session_config", self._handle, None if self._config is None else self._config.encode())
        self._published = []
        self._tell()
        self._planned = True

    def fill(self, weights: Iterable[tuple[str, Any]], names: Names = hf, config: Any = None) -> None:
        """Copies tensors that are there for a moment only, as an iterator's that gathers one after the other, into memory of the
        session's, which `push` brings over: one copy, whatever the tensors' device. The first time it publishes that memory;
        afterwards the same names, shapes and dtypes must come, in any order. `names` and `config` are as publish's.

        >>> sync = tandem_sync.Session(engines=[ENGINE])
        >>> for _ in range(2):
        ...     sync.fill((name, parameter.detach().clone()) for name, parameter in model.named_parameters())
        ...     report = sync.push(version=next_version())
        >>> sync.check()
        True
        >>> sync.close()
        """
        self._check_idle()
        first = self._filled is None
        buffers: dict[str, Any] = {} if self._filled is None else self._filled
        missing = set(buffers)
        for name, tensor in weights:
            torch = sys.modules.get("torch")
            if torch is None or not isinstance(tensor, torch.Tensor):
                raise InvalidError(f"'{name}' is a {type(tensor).__name__}: fill takes tensors of torch's", 1)
            if hasattr(tensor, "placements"):
                raise InvalidError(f"'{name}' is a DTensor: publish takes models and shards as they are", 1)
            if first:
                if name in buffers:
                    raise InvalidError(f"'{name}' comes twice", 1)
                buffers[name] = new_block(torch, tensor, tuple(tensor.shape), self._new_region)
            known = buffers.get(name)
            if known is None or known.shape != tensor.shape or known.dtype != tensor.dtype:
                was = "it was not there" if known is None else f"it was {tuple(known.shape)} {known.dtype}"
                raise InvalidError(f"'{name}' is {tuple(tensor.shape)} {tensor.dtype}: {was} when fill was called first", 1)
            with torch.no_grad():
                known.copy_(tensor)
            missing.discard(name)
        if missing:
            raise InvalidError(f"'{min(missing)}' is missing: the same tensors come each time", 1)
        if first:
            self.publish(buffers, names, config)
            self._filled = buffers

    @property
    def filled(self) -> Mapping[str, Any]:
        """The memory that `fill` copies to, by the names that it was given, as another session might publish it.

        >>> with tandem_sync.Session(engines=[ENGINE]) as sync:
        ...     sync.fill((name, parameter.detach().clone()) for name, parameter in model.named_parameters())
        ...     tuple(sync.filled["model.norm.weight"].shape)
        (32,)
        """
        return {} if self._filled is None else self._filled

    @property
    def compared(self) -> bool:
        """Whether the engines' architecture (family, sizes, eps, rotary frequencies, …) was compared with the published
        model's, and equal: False where one of them does not say it (a third-party server, tensors without a config), and on
        ranks other than 0.

        >>> sync = tandem_sync.Session(engines=[ENGINE])
        >>> sync.publish(model)
        >>> sync.compared    # a module of torch's has no config.json
        False
        >>> sync.close()
        """
        self._check_idle()
        compared = c.c_int32()
        call("td_session_compared", self._handle, c.byref(compared))
        return bool(compared.value)

    def adopt(self, model: Any) -> None:
        """Moves the model's parameters (on the CPU) into memory that engines of this host open themselves: modes direct and
        alias then need no copy on the way. Values, optimizer and FSDP2 go on as before. Before publish; on every rank.

        >>> sync = tandem_sync.Session(engines=[ENGINE])
        >>> sync.adopt(model)
        >>> sync.publish(model)
        >>> sync.push(version=next_version()).mode
        'direct'
        >>> sync.close()
        """
        self._check_idle()
        self._adopted.append(Adopted(model, self._new_region))

    @overload
    def push(self, version: int, wait: Literal[True] = True) -> Report: ...
    @overload
    def push(self, version: int, wait: Literal[False]) -> Push: ...
    @overload
    def push(self, version: int, wait: bool) -> Report | Push: ...

    def push(self, version: int, wait: bool = True) -> Report | Push:
        """Brings the weights' current values into the engines as `version`, which grows from push to push: prepare, pause,
        transfer, commit, resume, on every rank. Raises SyncError on every rank alike. wait=False returns a Push at once.

        >>> sync = tandem_sync.Session(engines=[ENGINE])
        >>> sync.publish(model)
        >>> version = next_version()
        >>> sync.push(version=version).version == version
        True
        >>> sync.close()
        """
        self._check_idle()
        if self._items is None:
            raise InvalidError("nothing has been published: call publish first", 1)
        version = index(version)
        if not 0 < version < 1 << 63:  # ctypes would cut it to 64 bits
            raise InvalidError(f"version {version} is not between 1 and 2**63 - 1", 1)
        self._ready()
        self._tell()
        if wait:
            report = Report_(size=c.sizeof(Report_))
            call("td_session_push", self._handle, version, c.byref(report))
            return report_of(report)
        handle = c.c_void_p()
        call("td_session_push_async", self._handle, version, c.byref(handle))
        self._under_way = Push(self, handle)
        return self._under_way

    def check(self) -> bool:
        """Whether the engines hold exactly what the trainer holds now: whole tensors, gathered apart from the push. On every
        rank; see first_mismatch for the tensor."""
        return self.first_mismatch() is None

    def first_mismatch(self) -> str | None:
        """The first tensor in which engines and trainer differ; None: none. On every rank.

        >>> sync = tandem_sync.Session(engines=[ENGINE])
        >>> sync.publish(model)
        >>> report = sync.push(version=next_version())
        >>> with torch.no_grad():
        ...     _ = model.model.norm.weight.add_(1)
        >>> sync.first_mismatch()
        'model.norm.weight'
        >>> sync.close()
        """
        self._check_idle()
        match, name = c.c_int32(), c.create_string_buffer(1024)
        call("td_session_check", self._handle, c.byref(match), name, len(name))
        return None if match.value else name.value.decode()

    def non_finite(self) -> str | None:
        """Which tensor of the trainer's has elements that are infinite or NaN, how many and where; None: all are finite. On
        every rank. A push does not ask: it brings the engines what there is.

        >>> sync = tandem_sync.Session(engines=[ENGINE])
        >>> sync.publish(model)
        >>> sync.non_finite() is None
        True
        >>> sync.close()
        """
        self._check_idle()
        finite, found = c.c_int32(), c.create_string_buffer(1024)
        call("td_session_finite", self._handle, c.byref(finite), found, len(found))
        return None if finite.value else found.value.decode()

    def speed_of_light(self) -> float:
        """Milliseconds of copying the published bytes once, as fast as this machine can; later reports carry it. On every
        rank.

        >>> sync = tandem_sync.Session(engines=[ENGINE])
        >>> sync.publish(model)
        >>> sync.speed_of_light() > 0
        True
        >>> sync.push(version=next_version()).speed_of_light > 0
        True
        >>> sync.close()
        """
        self._check_idle()
        ms = c.c_double()
        call("td_session_speed_of_light", self._handle, c.byref(ms))
        return ms.value

    def close(self) -> None:
        """Ends what is under way and disconnects. Adopted parameters stay valid.

        >>> sync = tandem_sync.Session(engines=[ENGINE])
        >>> sync.close()
        >>> sync.close()
        """
        if self._closed:
            return
        self._closed = True
        if self._process != getpid():  # threads and connections stayed with the parent
            return
        if self._under_way is not None:
            self._under_way._end("the session was closed")
        self._disconnect()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not sys.is_finalizing():
            try:
                self.close()
            except Error:
                pass

    def _check_idle(self, connected: bool = True) -> None:
        if self._process != getpid():
            raise InvalidError(f"the session is process {self._process}'s: a child after a fork opens one of its own", 1)
        if self._closed:
            raise InvalidError("the session is closed", 1)
        if connected and not self._handle:
            raise InvalidError("the session has no engines: reconnect failed", 1)
        if self._under_way is not None:
            raise InvalidError("a push is under way: call its wait first", 1)

    def _new_region(self, size: int, versioned: bool) -> int:
        out = c.c_void_p()
        call("td_session_region", self._handle, size, int(versioned), c.byref(out))
        assert out.value is not None
        return out.value

    def _name(self, name: str) -> str | None:
        if callable(self._names):
            return self._names(name)
        return self._names.get(name)

    def _ready(self) -> None:
        """Waits for a GPU that writes the weights."""
        for device in {one.device for one in self._published if one.device[0] == CUDA}:
            sys.modules["torch"].cuda.synchronize(device[1])

    def _tell(self) -> None:
        """Publishes the tensors, or where they lie now."""
        assert self._items is not None
        for adopted in self._adopted:
            adopted.settle()
        items = [(name, value) for given, value in self._items()
                 if (name := self._name(given)) is not None and not is_elsewhere(value)]
        places = [(name, address_of(value)) for name, value in items]
        if self._published and places == self._places:
            return
        meshes: dict[int, Mesh] = {}
        found = [describe(name, value, meshes) for name, value in items]
        call("td_session_publish", self._handle, to_c(found), len(found))
        self._published, self._places = found, places
