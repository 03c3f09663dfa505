"""What Redis is told and asked: how pins stand there, and the scripts that change them in one step.

* A pin is a string, `pool NUL backend`, that lives as long as the pin does; its key ends with the pin's digest.
* What a holder, `pool NUL backend`, holds is a sorted set of digests. Their scores say when, in milliseconds of Redis's
  own clock, a task stops being held if nobody hears of it again.
* All holders are in one set. One key holds a random word for as long as Redis keeps its data: when it is another one,
  what was there is lost.
* All keys share a hash tag, so that one node of a cluster serves them all. Scripts make the names of held sets by
  themselves, which a cluster allows for keys of the same slot.
"""

from collections.abc import Mapping
from enum import IntEnum
from hashlib import sha1
from typing import TypeAlias

from proxy.routing.ownership import PinKey

Command: TypeAlias = tuple[str | bytes | int, ...]
Holder: TypeAlias = tuple[str, str]
"""(pool, backend id)"""

PREFIX = b"mcp:{pins}:"  # with a digest 27 bytes, which Redis keeps in 32
HELD = b"mcp:{pins}:held:"
HOLDERS = b"mcp:{pins}:holders"
EPOCH = b"mcp:{pins}:epoch"


class Mode(IntEnum):
    """What is said of a pin; the higher one counts where several things are to be said at once."""

    RESTORE = 0
    """It was there before Redis lost its data: made if there is none."""
    FINISH = 1
    """Its task ended. Made if there is none, from what is known."""
    RENEW = 2
    """Its life starts anew, whoever owns it. Made if there is none, from what is known."""
    CLAIM = 3
    """As RENEW, unless another backend owns it."""
    REPLACE = 4
    """Whoever owned it does so no longer."""


_READ = """
local owner = redis.call('GET', KEYS[1])
return owner and {owner, redis.call('PTTL', KEYS[1])}
"""

# A task that is over, or whose time has passed, is never held again: XX changes only what is there. SET comes first
# among what is written, since it is what fails when Redis has no room: then nothing is done. Each call takes up to two
# tasks off whose time has passed, so that the set stays in bounds where nobody ever asks for counts.
_SETTLE = """
local digest, holder, life, hold, over, mode = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1', tonumber(ARGV[7])
local owner, former = redis.call('GET', KEYS[1]), false
if owner and owner ~= holder then
  if mode == 3 then return owner end
  if mode == 4 then owner, former = false, owner end
end
if owner and mode == 0 then return owner end
if not owner then
  if holder == '' then return false end
  redis.call('SET', KEYS[1], holder, 'PX', life)
elseif mode > 1 then
  redis.call('PEXPIRE', KEYS[1], life)
end
if former then redis.call('ZREM', ARGV[1] .. former, digest) end
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local tasks = ARGV[1] .. (owner or holder)
if over then
  redis.call('ZREM', tasks, digest)
elseif owner then
  redis.call('ZADD', tasks, 'XX', now + hold, digest)
else
  redis.call('ZADD', tasks, now + hold, digest)
  redis.call('SADD', KEYS[2], holder)
end
for _, passed in ipairs(redis.call('ZRANGEBYSCORE', tasks, '-inf', now, 'LIMIT', 0, 2)) do
  redis.call('ZREM', tasks, passed)
end
return owner or holder
"""

_FORGET = """
local owner = redis.call('GET', KEYS[1])
if owner then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', ARGV[1] .. owner, ARGV[2])
end
"""

_COUNT = """
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local counts = {redis.call('GET', KEYS[2])}
for _, holder in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  redis.call('ZREMRANGEBYSCORE', ARGV[1] .. holder, '-inf', now)
  local count = redis.call('ZCARD', ARGV[1] .. holder)
  if count == 0 then
    redis.call('SREM', KEYS[1], holder)
  else
    counts[#counts + 1] = holder
    counts[#counts + 1] = count
  end
end
return counts
"""


def _digest(script: str) -> str:
    return sha1(script.encode(), usedforsecurity=False).hexdigest()  # what EVALSHA knows a script by


_READ_SHA, _SETTLE_SHA, _FORGET_SHA, _COUNT_SHA = map(_digest, (_READ, _SETTLE, _FORGET, _COUNT))


def setting_up(word: str) -> list[Command]:
    """What every new connection starts with: shows whether this server will do. The last two are `naming_epoch`."""
    loads: list[Command] = [("SCRIPT", "LOAD", script) for script in (_READ, _SETTLE, _FORGET, _COUNT)]
    return [*loads, counting(), *naming_epoch(word)]


def naming_epoch(word: str) -> list[Command]:
    """Makes `word` the epoch's if there is none, and answers with the epoch's word. A replica refuses the first."""
    return [("SET", EPOCH, word, "NX"), ("GET", EPOCH)]


def reading(key: PinKey) -> Command:
    """Asks for a pin: (holder, milliseconds to live), or None."""
    return ("EVALSHA", _READ_SHA, 1, PREFIX + key)


def settling(key: PinKey, holder: Holder | None, mode: Mode, *, life: float, hold: float, over: bool) -> Command:
    """Says something of a pin; the answer is its holder then, None if there is no pin.

    `holder`: as far as known. Seconds from now: its `life`, and how long it is held without further word, unless it is
    `over`.
    """
    named = b"" if holder is None else _named(holder)
    lives, holds = max(1, round(life * 1000)), max(0, round(hold * 1000))
    return ("EVALSHA", _SETTLE_SHA, 2, PREFIX + key, HOLDERS, HELD, key, named, lives, holds, int(over), int(mode))


def forgetting(key: PinKey) -> Command:
    """Drops a pin and its holding."""
    return ("EVALSHA", _FORGET_SHA, 1, PREFIX + key, HELD, key)


def counting() -> Command:
    """Asks for the epoch's word, then each holder and the number of its tasks; drops those whose time has passed."""
    return ("EVALSHA", _COUNT_SHA, 2, HOLDERS, EPOCH, HELD)


def holder_in(reply: object) -> Holder | None:
    """The holder that a pin's value names; None for what is no pin."""
    if not isinstance(reply, bytes):
        return None
    pool, _, backend = reply.decode("utf-8", "surrogateescape").partition("\0")
    return pool, backend


def counts_in(reply: list[object]) -> Mapping[Holder, int]:
    """The counts in an answer to `counting`."""
    pairs = zip(reply[1::2], reply[2::2], strict=True)
    return {holder: count for named, count in pairs if (holder := holder_in(named)) and isinstance(count, int)}


def evicted_in(info: object) -> int | None:
    """Keys that Redis dropped for want of room since it was started, in an answer to INFO; None if it does not say."""
    if not isinstance(info, bytes):
        return None
    lines = (line.partition(b":") for line in info.split(b"\r\n"))
    return next((int(value) for name, _, value in lines if name == b"evicted_keys" and value.isdigit()), None)


def _named(holder: Holder) -> bytes:
    pool, backend = holder
    return f"{pool}\0{backend}".encode("utf-8", "surrogateescape")
