"""Responses read off the bytes of one backend connection, each as the answer to one request; without a transport.

Each message is fed to httptools alone: a head up to its empty line, then its body up to its end, so that the parser
never sees two messages joined. Responses without a body (to HEAD; 204, 304) are known here; httptools would wait for
one, so it is replaced after them.
"""

from enum import Enum

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from proxy.routing.errors import BadResponse, FramingError
from proxy.wire.framing import BodyCursor, cursor_for
from proxy.wire.limits import MANY_PIECES, MAX_HEAD
from proxy.wire.parsing import DUE, ONLY_END, into
from proxy.wire.response_head import ResponseFrame, ResponseHead, ResponseHeadReader
from proxy.wire.sinks import ResponseSink

_MAX_INTERIM = 16  # 1xx responses before the final one


class Progress(Enum):
    """What has come of a response."""

    HEADLESS = 1
    """Not all of its head."""
    BEGUN = 2
    """Its head, and some of the rest may be still to come."""
    ENDED = 3
    """Its end; all was handed over."""
    WHOLE = 4
    """All of it at once: `head` and `pieces`, if it has content, are still to be handed over."""


HEADLESS, BEGUN, ENDED, WHOLE = Progress  # by themselves, since they are looked up with every response


class ResponseReader:
    """Reads one connection. `begin` for each response; add what comes to `text`, and `read` it."""

    __slots__ = (
        "_fed",
        "_frame",
        "_heads",
        "_interims",
        "_lasting",
        "_marks",
        "_parser",
        "_to_head",
        "at",
        "body",
        "crowded",
        "head",
        "pieces",
        "text",
    )

    body: BodyCursor
    """That of the present response, once its head has come; who takes content from it has read that."""

    def __init__(self, heads: ResponseHeadReader) -> None:
        self._heads = heads
        self.text = b""
        """What came; some of what is read may still stand at its beginning."""
        self.at = 0
        """How much of it is read."""
        self.head: ResponseHead | None = None
        """The response's final head, once it has come."""
        self.pieces: list[bytes] = []
        """Content that was read and not handed over."""
        self.crowded = False
        """True if the last read brought more pieces than one connection should at a time."""
        self._fed = 0  # how much of the text the parser has seen, of a head that is not whole
        self._frame: ResponseFrame | None = None  # of the last final head
        self._to_head = self._lasting = False
        self._interims = 0
        self._marks: list[None] = []
        self._new_parser()

    def begin(self, *, to_head: bool, lasting: bool = False) -> None:
        """The next response is awaited; `to_head`: it answers a HEAD request; `lasting`: as long as its client listens,
        so that nothing is kept for the next head."""
        self._to_head, self._lasting = to_head, lasting
        self.head = None
        self._interims = 0

    def alike(self, text: bytes) -> tuple[ResponseHead, bytes] | None:
        """Head and body, if `text` is all of this response and its head like the last one in all but its length.

        To be asked before any of it is read; nothing of it is read then, and another response may follow.
        """
        frame = self._frame
        if frame is None or frame.likeness is None or self._to_head or self._interims:
            return None
        differs = frame.likeness.value(text)
        if differs is None:
            return None
        digits, end = differs
        length = len(text) - end
        return (ResponseHead(frame, length), text[end:]) if digits == b"%d" % length else None

    def read(self, sink: ResponseSink) -> Progress:
        """Hands what there is to the sink, up to the response's end. Raises BadResponse."""
        self.crowded = False
        try:
            while self.at < len(self.text):
                if self.head is None:
                    progress = self._read_head(sink)
                    if progress is not BEGUN:
                        return progress
                elif self._read_body(sink):
                    return ENDED
        except (FramingError, HttpParserError) as error:
            raise BadResponse(f"the backend's response does not parse: {error}") from None
        self.text, self.at = b"", 0
        return BEGUN

    def _read_head(self, sink: ResponseSink) -> Progress:
        """Reads a head if it is there whole, and what came of the body if that is all that follows."""
        text, start, marks = self.text, self.at, self._marks
        end = text.find(b"\r\n\r\n", max(start, self._fed - 3)) + 4
        if (end if end >= 4 else len(text)) - start > MAX_HEAD:
            raise BadResponse(f"the backend's head has more than {MAX_HEAD} bytes")
        if end < 4:
            self._feed(text[max(start, self._fed) :])
            self._fed = len(text)
            return HEADLESS
        head = self._heads.read(text[start:end], to_head=self._to_head, before=self._frame)
        whole = not head.frame.bodyless and len(text) - end == head.length
        seen, stop = max(start, self._fed), len(text) if whole else end
        marks += DUE
        self._feed(text if not seen and stop == len(text) else text[seen:stop])
        if len(marks) > ONLY_END:
            raise BadResponse("the backend's head does not end where it seems to")
        self.at, self._fed = stop, 0
        if head.frame.interim:
            self._interims += 1
            if self._interims > _MAX_INTERIM:
                raise BadResponse(f"the backend sent more than {_MAX_INTERIM} interim responses")
            sink.interim(head)
            return BEGUN
        self.head, self._frame = head, head.frame
        if self._lasting:
            head.frame.stop_sharing()
            self._frame = None
        if whole:
            if marks:
                raise BadResponse("the backend's body does not end where it should")
            return WHOLE
        if head.frame.bodyless:
            if marks:
                marks.clear()
                self._new_parser()
            sink.response_head(head)
            return ENDED
        self.body = cursor_for(head.length, chunked=head.frame.chunked)
        sink.response_head(head)
        return BEGUN

    def _read_body(self, sink: ResponseSink) -> bool:
        """Reads what there is of the body; True: all of it was read."""
        text, start, pieces = self.text, self.at, self.pieces
        end = self.at = self.body.end(text, start)
        self._feed(text if end - start == len(text) else text[start:end])
        if len(pieces) > MANY_PIECES:
            self.crowded = True
        if pieces:
            content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            sink.response_body(content)
        ended = not self._marks
        if self.body.ended is not ended:
            raise BadResponse("the backend's body does not end where it should")
        if ended and self.head is not None and self.head.frame.chunked:
            self._new_parser()  # it obeys a Connection in trailers, which mean nothing there (RFC 9110, 6.5.1)
        return ended

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            raise BadResponse("the backend switches protocols") from None

    def _new_parser(self) -> None:
        self._parser = HttpResponseParser(into(self._marks, self.pieces))

    def end(self) -> bool:
        """The response is complete, and what came behind it is dropped. True if another may follow."""
        head, clean = self.head, self.at == len(self.text)
        self.head, self.text, self.at = None, b"", 0
        return head is not None and head.frame.keep_alive and clean
