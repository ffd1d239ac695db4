"""verl's CheckpointEngineManager, with actors that hand over their shards.

    actor_rollout_ref.rollout.checkpoint_manager_class=tandem_sync.verl.ShardedCheckpointManager
"""

from __future__ import annotations

from typing import Any

from verl.checkpoint_engine.base import CheckpointEngineManager


class ShardedCheckpointManager(CheckpointEngineManager):  # type: ignore[misc]
    """Tells actors that they give their engine to the checkpoint engine, where they would gather full tensors: a word of verl's
    for any engine that asks for it, whatever back end it was made for."""

    backend: str

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if self.backend == "tandem":
            self.backend = "delta_sharded"
