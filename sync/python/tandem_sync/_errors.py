"""The errors of the library as exceptions."""

from __future__ import annotations


class Error(RuntimeError):
    """A call of the library that failed. The message says what, where, and what to do.

    >>> error = Error("load with engine A: the connection was reset", 4, phase="load", peer="engine A")
    >>> error.phase, error.peer, error.rank, error.bucket
    ('load', 'engine A', None, None)
    """

    def __init__(self, message: str, status: int = 7, *, rank: int | None = None, phase: str = "", peer: str = "",
                 bucket: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """the C library's number for it (td_status)"""
        self.rank = rank
        """the rank that failed; None: this one, before the ranks could agree"""
        self.phase = phase
        """"connect", "publish", "plan", "prepare", "pause", "load", "commit", …; empty: none"""
        self.peer = peer
        """with whom: "engine 127.0.0.1:30000", "rank 3"; empty: nobody"""
        self.bucket = bucket
        """the bucket on its way; None: none"""


class InvalidError(Error, ValueError):
    """An argument, a name or a layout is wrong; nothing was done.

    >>> try:
    ...     tandem_sync.Session(engines=[ENGINE], mode="teleport")
    ... except tandem_sync.InvalidError as error:
    ...     print(error)
    no mode 'teleport'; there are gather, direct, alias, delta
    """


class DeadlineError(Error, TimeoutError):
    """Somebody is late: `peer` and `phase` say who, and in what.

    >>> issubclass(DeadlineError, TimeoutError)
    True
    """


class SyncError(Error):
    """Opening, publishing or pushing failed, on every rank alike. After a push the engine serves the version from before
    where it is intact, and else refuses to generate; the next push that succeeds mends it.

    >>> try:
    ...     tandem_sync.Session(engines=["http://127.0.0.1:9"])
    ... except tandem_sync.SyncError as error:
    ...     print(error.rank, error.phase)
    0 connect
    """
