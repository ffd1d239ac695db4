"""A push under way, and what it did."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._errors import DeadlineError, Error
from ._library import Report_, call

if TYPE_CHECKING:
    from ._session import Session


@dataclass(frozen=True)
class Report:
    """What a push did. Times are milliseconds of this rank's; rank 0's include the engine's.

    >>> report = tandem_sync.Report(version=3, paused_ms=12.0, transfer_ms=10.0, prepare_ms=4.0, speed_of_light_ms=8.0,
    ...                        bytes=1000, bytes_moved=1000, buckets=2, mode="direct")
    >>> report.speed_of_light
    1.25
    """

    version: int
    paused_ms: float
    """from the first engine's pause to the last one's resume"""
    transfer_ms: float
    """of that, bringing the bytes over and committing them"""
    prepare_ms: float
    """before the pause"""
    speed_of_light_ms: float
    """of copying the same bytes once, where Session.speed_of_light has measured it; else 0"""
    bytes: int
    """in the engines' weights"""
    bytes_moved: int
    buckets: int
    mode: str

    @property
    def speed_of_light(self) -> float | None:
        """transfer_ms over the time of copying the bytes once; None: not measured."""
        return self.transfer_ms / self.speed_of_light_ms if self.speed_of_light_ms > 0 else None


def report_of(raw: Report_) -> Report:
    return Report(raw.version, raw.paused_ms, raw.transfer_ms, raw.prepare_ms, raw.speed_of_light_ms, raw.bytes,
                  raw.bytes_moved, raw.buckets, raw.mode.decode())


class Push:
    """A push under way (`push(wait=False)`). Until it is done the weights may not change.

    >>> sync = tandem_sync.Session(engines=[ENGINE])
    >>> sync.publish(model)
    >>> under_way = sync.push(version=next_version(), wait=False)
    >>> report = under_way.wait()
    >>> under_way.done()
    True
    >>> report.bytes == sync.push(version=next_version()).bytes
    True
    >>> under_way.abort()    # it is done: nothing happens
    >>> sync.close()
    """

    def __init__(self, session: Session, handle: c.c_void_p) -> None:
        self._session: Session | None = session
        self._handle = handle
        self._outcome: Report | Error | None = None

    def done(self) -> bool:
        """Whether wait would return, or raise, at once."""
        try:
            self.wait(timeout=0.0)
        except DeadlineError:
            return self._outcome is not None
        except Error:
            pass
        return True

    def wait(self, timeout: float | None = None) -> Report:
        """The report, once every engine serves the version. Raises SyncError when the push failed, DeadlineError when it is
        not done after `timeout` seconds (None: as long as the session's deadlines let it take)."""
        if self._outcome is None:
            report = Report_(size=c.sizeof(Report_))
            try:
                call("td_push_wait", self._handle, 1e6 if timeout is None else timeout, c.byref(report))
                self._outcome = report_of(report)
            except DeadlineError as error:
                if error.peer == "the push":
                    raise
                self._outcome = error
            except Error as error:
                self._outcome = error
            self._free()
        if isinstance(self._outcome, Error):
            raise self._outcome
        return self._outcome

    def abort(self, reason: str = "the trainer aborted the push") -> None:
        """Ends the push on every rank, unless engines are committing it already: wait then raises. The session can only be
        closed afterwards."""
        if self._outcome is None:
            call("td_push_abort", self._handle, reason.encode())

    def _end(self, reason: str) -> None:
        """Aborts it and keeps how it ended, for those who still ask."""
        self.abort(reason)
        try:
            self.wait()
        except Error:
            pass

    def _free(self) -> None:
        if self._session is not None:
            call("td_push_free", self._handle)
            self._session._under_way = None
            self._session = None
