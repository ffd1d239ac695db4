"""The ranks of a session, and how they reach each other while it opens."""

from __future__ import annotations

import ctypes as c
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ._library import ALL_GATHER, Group_


@dataclass(frozen=True)
class Group:
    """Ranks that some launcher has joined already. `all_gather` gives this rank's bytes to all ranks and returns theirs, by
    rank; it is called a few times while a Session opens, and never again.

    >>> alone = tandem_sync.Group(rank=0, world_size=1, all_gather=lambda mine: [mine])
    >>> alone.world_size
    1
    """

    rank: int
    world_size: int
    all_gather: Callable[[bytes], list[bytes]]

    @staticmethod
    def current() -> Group | None:
        """torch.distributed's default group where that is initialized, else None: one rank.

        >>> tandem_sync.Group.current() is None
        True
        """
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_available() or not dist.is_initialized():
            return None

        def all_gather(mine: bytes) -> list[bytes]:
            texts: list[bytes] = [b""] * dist.get_world_size()
            dist.all_gather_object(texts, mine)
            return texts

        return Group(dist.get_rank(), dist.get_world_size(), all_gather)

    def _to_c(self, failures: list[BaseException]) -> Group_:
        def gather(_context: int, mine: int, size: int, everything: int) -> int:
            try:
                texts = self.all_gather(c.string_at(mine, size))
                if len(texts) != self.world_size or any(len(text) != size for text in texts):
                    raise ValueError(f"all_gather returned {[len(text) for text in texts]} bytes, not {size} from each of "
                                     f"{self.world_size} ranks")
                c.memmove(everything, b"".join(texts), size * len(texts))
                return 0
            except BaseException as error:  # nothing may pass through C++
                failures.append(error)
                return 1

        return Group_(size=c.sizeof(Group_), rank=self.rank, world_size=self.world_size, all_gather=ALL_GATHER(gather))
