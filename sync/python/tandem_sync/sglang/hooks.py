"""What SGLang's scheduler does otherwise in a server with our loader. Every rank has a scheduler, and a worker of ours.

    GET /server_info                        internal_states[0]["tandem"]: the first rank's Worker.state
    POST /set_internal_state                {"server_args": {"tandem_note": N}}: what a trainer leaves for its successor
    POST /update_weights_from_tensor        with load_format "tandem_sync.sglang.load": Worker.update

Nothing here raises but `load`, which SGLang's own update catches: its scheduler ends the server at any exception.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .worker import LOADER, Worker

NOTE = "tandem_note"
logger = logging.getLogger(__name__)
_worker: Worker | None = None  # of this process; None: the server runs without our loader


def made(result: Any, scheduler: Any, *_: Any, **__: Any) -> None:
    """A scheduler has been made, and its model loaded."""
    global _worker
    try:
        if LOADER in (scheduler.server_args.custom_weight_loader or []):
            _worker = Worker(scheduler)
    except Exception:
        logger.exception("Tandem can receive no weights")


def asked(result: Any, *_: Any, **__: Any) -> Any:
    if _worker is not None:
        try:
            result.internal_state["tandem"] = _worker.state()
        except Exception:
            logger.exception("Tandem's state cannot be told")
    return result


def told(original: Callable[..., Any], scheduler: Any, request: Any) -> Any:
    """What is no number is answered as not updated."""
    if _worker is None or not isinstance(request.server_args, dict) or NOTE not in request.server_args:
        return original(scheduler, request)
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput

    try:
        _worker.leave_note(int(request.server_args[NOTE]))
        updated = True
    except (TypeError, ValueError, OverflowError) as error:
        logger.warning("Tandem: %s is no number: %s", NOTE, error)
        updated = False
    before_0_5_23: dict[str, Any] = {"server_args": {}} if "server_args" in SetInternalStateReqOutput.__annotations__ else {}
    return SetInternalStateReqOutput(updated=updated, **before_0_5_23)


def update(original: Callable[..., Any], updates: Any, request: Any) -> Any:
    if _worker is None or request.load_format != LOADER:
        return original(updates, request)
    return _worker.update(original, updates, request)


def load(model: Any) -> None:
    if _worker is None:
        raise RuntimeError(f"{LOADER} without its plug-in: SGLang loads it by its entry point (SGLANG_PLUGINS: tandem)")
    _worker.load(model)
