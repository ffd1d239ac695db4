"""Tandem's weight sync for PyTorch: after every optimizer step the inference engine holds exactly the trainer's weights.

    sync = tandem_sync.Session(engines=["http://127.0.0.1:30000"])    # on every rank
    sync.publish(model)                                          # once: FSDP2, HSDP and TP are understood
    report = sync.push(version=step)                             # after optimizer.step()

Nothing here imports torch before a model of torch's is given.
"""

from ._errors import DeadlineError, Error, InvalidError, SyncError
from ._group import Group
from ._library import abi_version
from ._names import hf
from ._push import Push, Report
from ._session import Session
from ._shard import Mesh, Placement, Replicate, Shard, StridedShard, Whole

__version__ = "0.1.0"
__all__ = [
    "DeadlineError", "Error", "Group", "InvalidError", "Mesh", "Placement", "Push", "Replicate", "Report", "Session",
    "Shard", "StridedShard", "SyncError", "Whole", "abi_version", "hf",
]
