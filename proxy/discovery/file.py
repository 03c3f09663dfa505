"""Backends that files list, in the format of Prometheus's file_sd: a list of {targets: [HOST:PORT], labels: {…}}.

Rules:
* The set is that of all files together, and none if one of them cannot be read: a part is not the whole. Of targets
  that are listed twice the first counts. An empty list is an answer; no file at all is a failure, as is a pipe or a
  device.
* Files are looked at each LOOK seconds, and read when one has changed, be it by a link on the way to it. They are to be
  replaced whole, by renaming; one that is read half written does no harm, if it does not parse or is whole again soon.
* Labels are Prometheus's affair, but for __scheme__, which must not contradict the configuration, and three of our own:
  __weight__, __drain__ and __mcp_path__.
"""

import asyncio
import json
import os
import stat
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from typing import Any

from proxy.config.addresses import bracketed, plain_path, split_authority
from proxy.config.problems import ConfigError, quoted
from proxy.config.reading import read_plain
from proxy.config.values import FileRecipe
from proxy.discovery.source import DiscoveryFailure, Found
from proxy.routing.backends import Backend

LOOK = 1.0
"""Seconds between looks."""
_LARGEST = 4 * 1024 * 1024  # bytes of one file; some ten thousand targets with their labels
_MOST_FILES = 1000
_HEAVIEST = 1000  # as in the configuration
_PORTS = {False: 80, True: 443}

_State = tuple[str, int, int, int]


class FileSource:
    """The targets in the files of one pattern."""

    def __init__(self, recipe: FileRecipe, *, look: float = LOOK) -> None:
        self._recipe = recipe
        self._look = look
        self._read: dict[Path, tuple[_State, Found]] = {}

    async def watch(self) -> AsyncGenerator[Found, None]:
        """As DiscoverySource has it."""
        while True:
            yield await asyncio.to_thread(self._found)  # a file may be far away
            await asyncio.sleep(self._look)

    def _found(self) -> Found:
        """Raises DiscoveryFailure."""
        pattern = self._recipe.pattern
        try:
            files = sorted(pattern.parent.glob(pattern.name))
            if not files:
                raise DiscoveryFailure("no_file", f"no file matches {pattern}")
            if len(files) > _MOST_FILES:
                raise DiscoveryFailure("unreadable", f"more than {_MOST_FILES} files match {pattern}")
            self._read = {file: self._contents(file) for file in files}
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise DiscoveryFailure("unreadable", f"{pattern}: cannot be read: {reason}") from None
        found: dict[str, Backend] = {}
        for _, backends in self._read.values():
            for backend in backends:
                found.setdefault(backend.id, backend)
        return tuple(sorted(found.values(), key=lambda backend: backend.id))

    def _contents(self, file: Path) -> tuple[_State, Found]:
        with open(file, "rb", opener=_without_waiting) as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DiscoveryFailure("unreadable", f"{file}: no regular file")
            state = os.path.realpath(file), status.st_ino, status.st_mtime_ns, status.st_size
            known = self._read.get(file)
            if known is not None and known[0] == state:
                return known
            raw = opened.read(_LARGEST + 1)
        if len(raw) > _LARGEST:
            raise DiscoveryFailure("unreadable", f"{file}: larger than {_LARGEST} bytes")
        try:
            return state, tuple(backends_in(_parsed(file, raw), self._recipe))
        except ValueError as error:
            raise DiscoveryFailure("malformed", f"{file}: {error}") from None


def _without_waiting(path: str, flags: int) -> int:
    """A pipe would keep the look, and with it the end of the process, until somebody writes."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parsed(file: Path, raw: bytes) -> Any:
    """Raises ValueError."""
    text = raw.decode("utf-8")
    try:
        return json.loads(text) if file.suffix == ".json" else read_plain(text, file.name)
    except ConfigError as error:
        raise ValueError(str(error.problems[0])) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def backends_in(groups: Any, recipe: FileRecipe) -> Iterator[Backend]:
    """The backends that a file's contents list. Raises ValueError, which says what is wrong."""
    for group in _checked(groups, list, "a list of {targets, labels}"):
        targets = _checked(_checked(group, dict, "{targets, labels}").get("targets"), list, "targets: a list")
        labels = _checked(group.get("labels") or {}, dict, "labels: a mapping")
        weight, drain, path = _settings(labels, recipe)
        for target in targets:
            host, port = _place(target, recipe)
            backend_id = f"{bracketed(host)}:{port}"
            yield Backend(backend_id, host, port, path, weight, drain, recipe.tls, discovered=True)


def _place(target: Any, recipe: FileRecipe) -> tuple[str, int]:
    parts = split_authority(target) if isinstance(target, str) else None
    if parts is None or parts[1] == 0:
        raise ValueError(f"found the target {_shown(target)}; allowed: HOST:PORT")
    return parts[0], parts[1] or _PORTS[recipe.tls]


def _settings(labels: Mapping[Any, Any], recipe: FileRecipe) -> tuple[int, bool, str]:
    scheme = "https" if recipe.tls else "http"
    weight = str(labels.get("__weight__", "1"))
    drain = str(labels.get("__drain__", "false")).lower()
    path = str(labels.get("__mcp_path__", recipe.path))
    if labels.get("__scheme__", scheme) != scheme:
        raise ValueError(f"found __scheme__ {_shown(labels['__scheme__'])}; allowed: {scheme}, as configured")
    if not (weight.isascii() and weight.isdigit() and len(weight) <= 4 and 1 <= int(weight) <= _HEAVIEST):
        raise ValueError(f"found __weight__ {_shown(weight)}; allowed: an integer from 1 to {_HEAVIEST}")
    if drain not in ("true", "false"):
        raise ValueError(f"found __drain__ {_shown(drain)}; allowed: true, false")
    if not plain_path(path):
        raise ValueError(f"found __mcp_path__ {_shown(path)}; allowed: a path of plain segments")
    return int(weight), drain == "true", path


def _checked(value: Any, kind: type, allowed: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"found {_shown(value)}; allowed: {allowed}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    return "nothing" if value is None else quoted(str(value))
