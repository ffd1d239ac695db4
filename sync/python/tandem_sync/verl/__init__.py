"""Tandem inside verl: the checkpoint engine `tandem`, for rollouts that are servers of their own (not hybrid ones).

    actor_rollout_ref.rollout.checkpoint_engine.backend=tandem
    actor_rollout_ref.rollout.checkpoint_manager_class=tandem_sync.verl.ShardedCheckpointManager     # FSDP2: nothing is gathered

verl imports this by the entry point verl.plugins, in each of its processes, and swallows whatever fails: so it registers, and
neither loads the library nor anything else that could be missing.
"""

from .engine import TandemCheckpointEngine
from .manager import ShardedCheckpointManager

__all__ = ["ShardedCheckpointManager", "TandemCheckpointEngine"]
