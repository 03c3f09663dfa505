"""One line for every request, kept for a moment and written many at a time.

Rules:
* Lines are ASCII and end with the only line feed in them, whatever a client sent. Of a task only its digest is shown.
* What cannot be written is kept, the newest lines at the cost of the oldest, and tried again at the next flush.
* Nothing is raised. Trouble is told of once, on the program's own log, and once more when it is over, with the number
  of lines lost.
"""

import json
import logging
import os
import re
import select
import stat
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol

from proxy.records import RequestRecord

FLUSH_AT = 64 * 1024
"""Bytes that do not wait for the next flush: as many as a pipe usually holds."""
KEEP = 1024 * 1024
"""Bytes of lines kept at most while the stream takes none: some thousand requests."""

_KEYS = (
    *("client", "verb", "method", "route", "pool", "backend", "status", "backend_status"),
    *("kind", "source", "outcome", "duration_ms", "first_byte_ms", "bytes_in", "bytes_out", "error", "task"),
)  # `time` comes before them and `streamed` behind
_BARE = re.compile(r"[!#-<>-\[\]-~]+")  # printable ASCII without space, quote, equals sign and backslash
_logger = logging.getLogger("proxy")


# Most lines are made of the same few texts. The caches are small, since clients choose some of them.
@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return json.dumps(text)


@lru_cache(maxsize=1024)
def _bare_or_quoted(text: str) -> str:
    return text if _BARE.fullmatch(text) else json.dumps(text)


class _Format(NamedTuple):
    """How a line is put together."""

    start: str
    """Up to the time."""
    after_time: str
    key: str
    """A template: what stands before a value, and parts it from the one before."""
    end: str
    quote: Callable[[str], str]


_FORMATS = {
    "json": _Format('{"time":"', '"', ',"%s":', "}\n", _quoted),
    "text": _Format("time=", "", " %s=", "\n", _bare_or_quoted),
}


class ByteStream(Protocol):
    """An unbuffered binary stream, as `open(..., "ab", buffering=0)` gives it."""

    def write(self, data: bytes, /) -> int | None:
        """Writes some of the data and returns how much; None when it would have to wait. Raises OSError."""
        ...


_ATOMIC = 4096  # bytes that a pipe takes whole or not at all (pipe(7), PIPE_BUF)


class StandardOutput:
    """Standard output, written to only where that cannot wait: a reader that stalls must not stop the proxy.

    The descriptor stays as it is: other processes share it, and would be surprised if it did not block. They may write
    to it at the same time, so what goes into a pipe goes in pieces that it takes whole, and that end with a line.
    """

    def __init__(self, descriptor: int = 1) -> None:
        kind = os.fstat(descriptor).st_mode
        self._is_file = stat.S_ISREG(kind)
        self._descriptor = _opened_anew(descriptor) if stat.S_ISFIFO(kind) else descriptor
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)

    def write(self, data: bytes, /) -> int | None:
        if self._is_file:
            return os.write(self._descriptor, data)
        if not self._poll.poll(0):
            return None
        end = data.rfind(b"\n", 0, _ATOMIC) + 1
        try:
            return os.write(self._descriptor, data[: end or _ATOMIC])
        except BlockingIOError:  # another process was faster
            return None


def _opened_anew(pipe: int) -> int:
    """A descriptor of our own for this pipe, which never blocks; the same one where the system does not give it."""
    try:
        return os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return pipe


class AccessLog:
    """Lines on their way to a stream. `clock` gives seconds since 1970; a request's time is that of its end."""

    def __init__(self, stream: ByteStream, format: Literal["json", "text"], clock: Callable[[], float]) -> None:
        self._stream = stream
        self._format = _FORMATS[format]
        self._keys = [self._format.key % key for key in _KEYS]
        self._streamed = self._format.key % "streamed" + "true"
        self._clock = clock
        self._second = -1
        self._date = ""  # of that second
        self._rest = b""  # of a line whose beginning is written
        self._lines: deque[bytes] = deque()
        self._size = 0  # of those lines
        self._dropped = 0
        self._waiting = False  # for the next flush: the stream took less than it was given
        self._told = False

    def record(self, record: RequestRecord) -> None:
        """Adds a request's line. Never raises."""
        line = self._line(record)
        self._lines.append(line)
        self._size += len(line)
        if self._size > FLUSH_AT:
            if not self._waiting:
                self.flush()
            while self._size > KEEP:
                self._drop_oldest()

    def flush(self) -> None:
        """Writes what is there, as far as the stream takes it. Never raises."""
        data = b"".join((self._rest, *self._lines))
        written = 0
        try:
            while written < len(data):
                count = self._stream.write(data[written:])
                if not count:
                    break
                written += count
        except (OSError, ValueError) as error:  # ValueError: somebody closed the stream
            self._tell("cannot be written: %s", error)
        self._keep(data, written)
        self._waiting = written < len(data)
        if self._told and not self._waiting:
            _logger.warning("access log: is written again; lines lost: %d", self._dropped)
            self._told, self._dropped = False, 0

    def close(self) -> None:
        """Flushes for the last time, and tells how many lines are lost, if any. Leaves the stream open."""
        self.flush()
        lost = self._dropped + len(self._lines) + bool(self._rest)
        if lost:
            _logger.warning("access log: lines lost at the end: %d", lost)

    def _keep(self, data: bytes, written: int) -> None:
        """Takes off what is written of the data, which is all there is, but remembers where a line was torn."""
        if not written:
            return
        left = data[written:]
        torn = 0 if data[written - 1 : written] == b"\n" else left.index(b"\n") + 1
        self._rest = left[:torn]
        self._lines = deque(left[torn:].splitlines(keepends=True))
        self._size = len(left) - torn

    def _drop_oldest(self) -> None:
        self._size -= len(self._lines.popleft())
        self._dropped += 1
        self._tell("is written too slowly, the oldest lines are dropped")

    def _tell(self, message: str, *args: object) -> None:
        if not self._told:
            self._told = True
            _logger.warning(f"access log: {message}", *args)

    def _line(self, record: RequestRecord) -> bytes:
        start, after_time, _, end, quote = self._format
        values: tuple[str | float | None, ...] = (  # in the order of _KEYS; what is None or "" is left out
            record.client,
            record.verb,
            record.method,
            record.route,
            record.pool,
            record.backend,
            record.status,
            record.backend_status or None,
            record.kind,
            record.source,
            record.outcome,
            round(record.duration * 1000, 3),
            round(record.first_byte * 1000, 3) if record.first_byte >= 0 else None,
            record.bytes_in,
            record.bytes_out,
            record.error,
            record.task,
        )
        parts = [start, self._now(), after_time]
        for key, value in zip(self._keys, values, strict=True):
            if isinstance(value, str):
                if value:
                    parts.append(key + quote(value))
            elif value is not None:
                parts.append(f"{key}{value}")
        if record.streamed:
            parts.append(self._streamed)
        parts.append(end)
        return "".join(parts).encode("ascii")

    def _now(self) -> str:
        """RFC 3339, in UTC, to the millisecond."""
        second, millisecond = divmod(int(self._clock() * 1000), 1000)
        if second != self._second:
            self._second = second
            self._date = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._date}.{millisecond:03d}Z"
