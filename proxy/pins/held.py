"""Asks a pin store how many tasks are held, without waiting for it for ever or failing with it."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol, TypeAlias
from weakref import WeakSet

from proxy.pins.store import Answer

STORE_WAIT = 2.0
"""Seconds that a scrape waits for the pin store; Prometheus gives a scrape up after 10 by default."""

Held: TypeAlias = Mapping[tuple[str, str], int | None]
"""Tasks held by each (pool, backend id), None where that is not known; those with none may be missing."""

_logger = logging.getLogger("proxy")


class Holder(Protocol):
    """What is asked of a PinStore here; its contract is in proxy/pins/store.py."""

    def held(self) -> Answer[Held]: ...


_silent: WeakSet[Holder] = WeakSet()
"""Stores that failed when they were last asked: some are asked every second, and it is said once."""


async def tasks_held(pins: Holder) -> Held | None:
    """How many tasks each (pool, backend id) holds; None when the store fails or takes longer than STORE_WAIT."""
    try:
        answer = pins.held()
        held = await asyncio.wait_for(answer, STORE_WAIT) if isinstance(answer, asyncio.Future) else answer
    except Exception as error:  # noqa: BLE001 - a store that is down must not take the other numbers with it
        if pins not in _silent:
            _silent.add(pins)
            _logger.warning("the pin store does not say how many tasks are held: %s", type(error).__name__)
        return None
    _silent.discard(pins)
    return held
