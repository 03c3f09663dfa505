"""Every request has its line; a stream that fails costs lines and never a request."""

import errno
import io
import json
import os
import re
import select
import shlex
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest

from proxy import access_log as access_log_module
from proxy.access_log import FLUSH_AT, KEEP, AccessLog, StandardOutput
from proxy.records import RequestRecord

NOW = 1_795_973_375.5679  # 2026-11-29 17:29:35.567 UTC


def record(**changes: Any) -> RequestRecord:
    fields: dict[str, Any] = {
        "method": "tasks/get",
        "verb": "POST",
        "status": 200,
        "route": "rest",
        "pool": "agents",
        "backend": "10.0.0.1:8000",
        "kind": "task",
        "source": "pin",
        "outcome": "served",
        "backend_status": 200,
        "duration": 0.0123456,
        "first_byte": 0.0101,
        "bytes_in": 120,
        "bytes_out": 0,
        "error": "",
        "client": "192.0.2.7",
        "task": "0123456789",
        "streamed": True,
    }
    return RequestRecord(**(fields | changes))


NOTHING_CHOSEN = record(
    method="other",
    status=404,
    route="",
    pool="",
    backend="",
    kind="none",
    source="",
    outcome="",
    backend_status=0,
    first_byte=-1.0,
    error="no_route",
    task="",
    streamed=False,
)


class Stream:
    """Takes `room` bytes in all, then acts as told: raises the error, or takes nothing (None). Counts the writes."""

    def __init__(self, room: int | None = None, error: Exception | None = None, piece: int | None = None) -> None:
        self.room = room
        self.error = error
        self.piece = piece
        self.written = b""
        self.writes = 0

    def write(self, data: bytes, /) -> int | None:
        self.writes += 1
        if self.piece is not None:
            data = data[: self.piece]
        if self.room is not None:
            data = data[: self.room]
            if not data:
                if self.error is not None:
                    raise self.error
                return None
            self.room -= len(data)
        self.written += data
        return len(data)


def log_to(
    stream: access_log_module.ByteStream,
    format: Literal["json", "text"] = "json",
    clock: Callable[[], float] = lambda: NOW,
) -> AccessLog:
    return AccessLog(stream, format, clock)


def clients(written: bytes) -> list[str]:
    """The clients of the lines, each of which must be whole."""
    assert written == b"" or written.endswith(b"\n")
    return [json.loads(line)["client"] for line in written.splitlines()]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [item.getMessage() for item in caplog.records]


def test_json_line_says_everything_in_order() -> None:
    stream = Stream()
    log = log_to(stream)
    log.record(record())
    log.flush()
    assert stream.written == (
        b'{"time":"2026-11-29T17:29:35.567Z","client":"192.0.2.7","verb":"POST","method":"tasks/get","route":"rest",'
        b'"pool":"agents","backend":"10.0.0.1:8000","status":200,"backend_status":200,"kind":"task","source":"pin",'
        b'"outcome":"served","duration_ms":12.346,"first_byte_ms":10.1,"bytes_in":120,"bytes_out":0,'
        b'"task":"0123456789","streamed":true}\n'
    )


def test_text_line_says_the_same_in_the_same_order() -> None:
    stream = Stream()
    log = log_to(stream, "text")
    log.record(record())
    log.flush()
    assert stream.written == (
        b"time=2026-11-29T17:29:35.567Z client=192.0.2.7 verb=POST method=tasks/get route=rest pool=agents "
        b"backend=10.0.0.1:8000 status=200 backend_status=200 kind=task source=pin outcome=served duration_ms=12.346 "
        b"first_byte_ms=10.1 bytes_in=120 bytes_out=0 task=0123456789 streamed=true\n"
    )


def test_what_is_empty_is_left_out() -> None:
    stream = Stream()
    log = log_to(stream)
    log.record(NOTHING_CHOSEN)
    log.flush()
    assert json.loads(stream.written) == {
        "time": "2026-11-29T17:29:35.567Z",
        "client": "192.0.2.7",
        "verb": "POST",
        "method": "other",
        "status": 404,
        "kind": "none",
        "duration_ms": 12.346,
        "bytes_in": 120,
        "bytes_out": 0,
        "error": "no_route",
    }


def test_a_first_byte_at_once_is_not_left_out() -> None:
    stream = Stream()
    log = log_to(stream)
    log.record(record(first_byte=0.0, duration=0.0))
    log.flush()
    line = json.loads(stream.written)
    assert (line["first_byte_ms"], line["duration_ms"]) == (0, 0)


HOSTILE = ["a b", 'a"b', "a=b", "a\nb", "a\r\nb", "a\tb", "a\\b", "ü", "\u2028", "\udcff", "\x00", "\x1b[31m"]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("format", ["json", "text"])
def test_no_value_can_forge_a_line(value: str, format: Literal["json", "text"]) -> None:
    stream = Stream()
    log = log_to(stream, format)
    log.record(record(client=value))
    log.flush()
    assert stream.written.isascii()
    assert stream.written.count(b"\n") == 1
    assert len(stream.written.decode().splitlines()) == 1
    assert re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", stream.written) is None
    if format == "json":
        assert json.loads(stream.written)["client"] == value
    else:
        match = re.search(r" client=(\".*\") verb=", stream.written.decode())
        assert match is not None
        assert json.loads(match[1]) == value


def test_text_line_splits_as_a_shell_would() -> None:
    stream = Stream()
    log = log_to(stream, "text")
    log.record(record(route="two words", backend="x=y"))
    log.flush()
    pairs = dict(item.split("=", 1) for item in shlex.split(stream.written.decode()))
    assert (pairs["route"], pairs["backend"], pairs["pool"]) == ("two words", "x=y", "agents")


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (1.9999, "1970-01-01T00:00:01.999Z"),
        (951782400.0, "2000-02-29T00:00:00.000Z"),
        (NOW, "2026-11-29T17:29:35.567Z"),
    ],
)
def test_time_is_utc_to_the_millisecond(now: float, text: str) -> None:
    stream = Stream()
    log = log_to(stream, clock=lambda: now)
    log.record(record())
    log.flush()
    assert json.loads(stream.written)["time"] == text


def test_time_goes_on_with_the_clock() -> None:
    stream = Stream()
    times = iter([10.25, 10.75, 11.0, 9.5])  # the clock may be set back
    log = log_to(stream, clock=lambda: next(times))
    for _ in range(4):
        log.record(record())
    log.flush()
    assert [json.loads(line)["time"][-7:] for line in stream.written.splitlines()] == [
        "10.250Z",
        "10.750Z",
        "11.000Z",
        "09.500Z",
    ]


def test_lines_wait_for_the_flush_and_leave_in_one_write() -> None:
    stream = Stream()
    log = log_to(stream)
    for number in range(5):
        log.record(record(client=str(number)))
    assert stream.writes == 0
    log.flush()
    assert stream.writes == 1
    assert clients(stream.written) == ["0", "1", "2", "3", "4"]
    log.flush()
    assert stream.writes == 1  # nothing more to write


def test_many_lines_do_not_wait_for_the_flush() -> None:
    stream = Stream()
    log = log_to(stream)
    number = 0
    while not stream.written and number < 10_000:
        log.record(record(client=str(number)))
        number += 1
    assert FLUSH_AT < len(stream.written) < FLUSH_AT + 1000
    assert clients(stream.written) == [str(n) for n in range(number)]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 100])
def test_a_stream_may_take_a_little_at_a_time(piece: int, caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream(piece=piece)
    log = log_to(stream)
    for number in range(3):
        log.record(record(client=str(number)))
    log.flush()
    assert clients(stream.written) == ["0", "1", "2"]
    assert messages(caplog) == []


def every_room(count: int) -> Sequence[int]:
    """From nothing to all of `count` lines, so that every border is met."""
    stream = Stream()
    log = log_to(stream)
    for number in range(count):
        log.record(record(client=str(number)))
    log.flush()
    return range(len(stream.written) + 1)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), None])
def test_nothing_is_lost_or_torn_where_a_stream_stops(error: Exception | None) -> None:
    """The stream stops at each byte in turn, twice, and then takes all."""
    for room in every_room(3):
        stream = Stream(room=room, error=error)
        log = log_to(stream)
        for number in range(3):
            log.record(record(client=str(number)))
        log.flush()
        stream.room = 5
        log.flush()
        log.record(record(client="3"))
        stream.room = None
        log.flush()
        assert clients(stream.written) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    "error",
    [BrokenPipeError(errno.EPIPE, "Broken pipe"), OSError(errno.ENOSPC, "No space left"), ValueError("closed file")],
)
def test_a_failing_stream_is_told_of_once_and_tried_at_flushes_only(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(room=0, error=error)
    log = log_to(stream)
    while stream.writes == 0:
        log.record(record())
    for _ in range(1000):  # more and more over the mark, and the stream is left alone
        log.record(record())
    assert stream.writes == 1
    for _ in range(3):
        log.flush()
    assert stream.writes == 4
    assert messages(caplog) == [f"access log: cannot be written: {error}"]
    stream.room = None
    log.flush()
    assert messages(caplog)[1:] == ["access log: is written again; lines lost: 0"]
    stream.room = 0
    log.record(record())
    log.flush()
    assert len(messages(caplog)) == 3  # a new failure is news again


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "cannot be written: [Errno 32] Broken pipe"),
        (None, "is written too slowly, the oldest lines are dropped"),
    ],
)
@pytest.mark.parametrize("torn", [0, 10])
def test_the_newest_lines_are_kept_and_the_lost_ones_counted(
    error: Exception | None, told: str, torn: int, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(room=torn, error=error)
    log = log_to(stream)
    count = 3 * KEEP // 200
    for number in range(count):
        log.record(record(client=f"{number:010}"))
    log.flush()
    assert len(stream.written) == torn
    assert messages(caplog) == [f"access log: {told}"]
    stream.room = None
    log.flush()
    kept = clients(stream.written)
    if torn:
        assert kept.pop(0) == "0000000000"  # its beginning was written: the rest of it is not dropped
    lost = count - len(kept) - bool(torn)
    assert lost > 0
    assert kept == [f"{number:010}" for number in range(count - len(kept), count)]
    assert KEEP - 1000 < len(stream.written) < KEEP + 1000
    assert messages(caplog)[1:] == [f"access log: is written again; lines lost: {lost}"]


def test_a_stream_that_has_to_wait_for_a_moment_is_not_worth_a_word(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream(room=100)
    log = log_to(stream)
    log.record(record(client="0"))
    log.flush()
    stream.room = None
    log.flush()
    assert clients(stream.written) == ["0"]
    assert messages(caplog) == []


def test_close_writes_the_last_lines(caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream()
    log = log_to(stream)
    log.record(record(client="0"))
    log.close()
    assert clients(stream.written) == ["0"]
    assert messages(caplog) == []


@pytest.mark.parametrize("torn", [0, 10])
def test_close_tells_how_many_lines_are_lost(torn: int, caplog: pytest.LogCaptureFixture) -> None:
    log = log_to(Stream(room=torn, error=BrokenPipeError(errno.EPIPE, "Broken pipe")))
    for _ in range(3):
        log.record(record())
    log.close()
    assert messages(caplog)[-1] == "access log: lines lost at the end: 3"


def test_a_real_pipe_whose_reader_left(caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb", buffering=0) as stream:
        log = log_to(stream)
        log.record(record())
        log.flush()
    assert messages(caplog) == ["access log: cannot be written: [Errno 32] Broken pipe"]


def test_a_real_pipe_that_is_full_blocks_nothing() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with open(reader, "rb", buffering=0) as source, open(writer, "wb", buffering=0) as stream:
        log = log_to(stream)
        for number in range(1000):  # more than a pipe holds
            log.record(record(client=str(number)))
        read = b""
        for _ in range(100):
            log.flush()
            read += source.read(FLUSH_AT)
            if read.count(b"\n") == 1000:
                break
    assert clients(read) == [str(number) for number in range(1000)]


def test_a_full_device(caplog: pytest.LogCaptureFixture) -> None:
    with open("/dev/full", "wb", buffering=0) as stream:
        log = log_to(stream)
        log.record(record())
        log.flush()
    assert messages(caplog) == ["access log: cannot be written: [Errno 28] No space left on device"]


def test_standard_output_gets_lines_at_once_and_stays_open(capfd: pytest.CaptureFixture[str]) -> None:
    log = log_to(StandardOutput())
    log.record(record(client="0"))
    log.flush()
    assert clients(capfd.readouterr().out.encode()) == ["0"]
    del log
    assert os.fstat(1)


def test_a_closed_stream_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    stream = io.BytesIO()
    stream.close()
    log = log_to(stream)
    log.record(record())
    log.flush()
    assert len(messages(caplog)) == 1


def test_writers_of_one_pipe_do_not_tear_each_others_lines() -> None:
    reading, writing = os.pipe()
    try:
        logs = [log_to(StandardOutput(writing)) for _ in range(3)]
        for number in range(200):
            for writer, log in enumerate(logs):
                log.record(record(client=f"{writer}-{number}", route="r" * (number % 90)))
        read = b""
        while any(log._size for log in logs):
            for log in logs:
                log.flush()
            read += os.read(reading, 5000)
        while select.select([reading], [], [], 0)[0]:
            read += os.read(reading, 2**16)
        assert sorted(clients(read)) == sorted(f"{w}-{n}" for w in range(3) for n in range(200))
    finally:
        os.close(reading)
        os.close(writing)


def test_a_reader_that_stalls_does_not_stop_the_writer() -> None:
    reading, writing = os.pipe()
    try:
        stream = StandardOutput(writing)
        line = b"x" * 1000
        written = 0
        for _ in range(1000):  # a pipe holds 64 KiB
            written += stream.write(line) or 0
        assert stream.write(line) is None
        assert os.read(reading, written + 1000) == b"x" * written
        assert stream.write(line) == 1000
    finally:
        os.close(reading)
        os.close(writing)
