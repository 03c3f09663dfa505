"""Decides whether an MCP 2026-07-28 request is in order: its JSON, its envelope, and headers that say the same."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

VERSION = "2026-07-28"
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"

UNKNOWN_TASK = INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601
HEADER_MISMATCH = -32020

_NAME_PARAM = dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId") | {"tools/call": "name"}
_BASE64 = re.compile(r"=\?base64\?(.*)\?=")

Json = dict[str, Any]


class Headers(Protocol):
    """The part of aiohttp's case-insensitive multidict that is read here."""

    def getall(self, key: str, default: list[str], /) -> list[str]:
        """Every value of a field, in the order received."""


class ProtocolError(Exception):
    """A JSON-RPC error to answer with."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose envelope and headers are in order."""

    method: str
    params: Mapping[str, Any]
    takes_tasks: bool


def parsed(body: bytes) -> Json:
    """The message in a body. Raises `ProtocolError` (-32700, -32600) where there is none."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError(-32700, "Parse error") from None
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        raise ProtocolError(-32600, "Body must be a single JSON-RPC request or notification")
    return message


def request_id(message: Json) -> str | int:
    """The id of a request. Raises `ProtocolError` (-32600)."""
    match message["id"]:
        case bool():
            pass
        case str() | int() as found:
            return found
    raise ProtocolError(-32600, "id must be a string or an integer")


def checked(message: Json, headers: Headers) -> Call:
    """The request in a message, where envelope and headers are in order ("Server Validation" of Streamable HTTP).

    Raises `ProtocolError`: -32602 for the envelope, -32020 for a header that is missing, repeated or says something
    else than the body, -32022 for another version.
    """
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(meta, dict) or not {VERSION_KEY, CAPABILITIES_KEY} <= meta.keys():
        raise ProtocolError(INVALID_PARAMS, f"params._meta must carry {VERSION_KEY} and {CAPABILITIES_KEY}")
    method, version = message["method"], meta[VERSION_KEY]
    if _header(headers, "MCP-Protocol-Version") != version:
        raise ProtocolError(HEADER_MISMATCH, "MCP-Protocol-Version differs from the body's version")
    if _header(headers, "Mcp-Method") != method:
        raise ProtocolError(HEADER_MISMATCH, "Mcp-Method differs from the body's method")
    name_param = _NAME_PARAM.get(method)
    if name_param is not None:
        name = params.get(name_param)
        if not isinstance(name, str):
            raise ProtocolError(INVALID_PARAMS, f"{name_param} must be a string")
        if _decoded(_header(headers, "Mcp-Name")) != name:
            raise ProtocolError(HEADER_MISMATCH, f"Mcp-Name differs from the body's {name_param}")
    if version != VERSION:
        raise ProtocolError(-32022, "Unsupported protocol version", {"supported": [VERSION], "requested": version})
    capabilities = meta[CAPABILITIES_KEY]
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return Call(method, params, takes_tasks=isinstance(extensions, dict) and TASKS_EXTENSION in extensions)


def _header(headers: Headers, name: str) -> str:
    values = headers.getall(name, [])
    if len(values) != 1:  # readers of the first and of the last copy would disagree
        raise ProtocolError(HEADER_MISMATCH, f"{name} must be sent exactly once")
    return values[0]


def _decoded(value: str) -> str | None:
    """The text of a field value that may be wrapped as `=?base64?...?=` (SEP-2243); None if it does not decode."""
    wrapped = _BASE64.fullmatch(value)
    if wrapped is None:
        return value
    try:
        return base64.b64decode(wrapped[1], validate=True).decode()
    except ValueError:
        return None
