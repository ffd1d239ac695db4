"""What one worker of a server meets, all of them are told of before they go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

logger = logging.getLogger(__name__)


def each_alone(step: Callable[[], None]) -> str:
    """What `step` failed with; empty: it did not."""
    try:
        step()
    except Exception as error:
        logger.exception("Tandem: a step of this worker failed")
        return f"{type(error).__name__}: {error}"
    return ""


def all_together(step: Callable[[], None], group: Any) -> list[str]:
    """Every rank's step in `group`, a GroupCoordinator of vLLM's or SGLang's, all of whose ranks call this: what each rank's
    failed with, on all of them. Returns when the last one has ended."""
    mine = each_alone(step)
    if group.world_size == 1:
        return [mine]
    failures = [""] * group.world_size
    torch.distributed.all_gather_object(failures, mine, group=group.cpu_group)
    return failures
