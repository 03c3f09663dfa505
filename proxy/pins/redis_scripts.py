"""What Redis is told and asked: how pins stand there, and the scripts that change them in one step.

* A pin is a string, `pool NUL backend`, that lives as long as the pin does; its key ends with the pin's digest.
* What a holder, `pool NUL backend`, holds is a sorted set of digests. Their scores say when, in milliseconds of Redis's
  own clock, a task stops being held if nobody hears of it again.
* All holders are in one set. When Redis drops a pin for want of room its task is still held; but held tasks without
  pins are taken off, a few for each new one, so that they do not fill Redis. Then it is noted up to when the count of
  their holder is not known: until the last of them would have stopped counting.
* One key holds a random word for as long as Redis keeps its data: when it is another one,
  what was there is lost.
* All keys share a hash tag, so that one node of a cluster serves them all. Scripts make the names of held sets by
  themselves, which a cluster allows for keys of the same slot.
"""

from collections.abc import Iterable, Mapping
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
UNSURE = b"mcp:{pins}:unsure"
INFO: Command = ("INFO",)
ASKING_EPOCH: Command = ("GET", EPOCH)


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

_DOUBT = """
local function doubt(unsure, holder, latest)
  local before = redis.pcall('ZSCORE', unsure, holder)
  if type(before) ~= 'string' or tonumber(before) < latest then redis.call('ZADD', unsure, latest, holder) end
end
"""

# A task that is over, or whose time has passed, is never held again: XX changes only what is there. SET comes first
# among what is written, since it is what fails when Redis has no room: then nothing is done. Each call takes up to two
# tasks off whose time has passed, so that the set stays in bounds where nobody ever asks for counts. One new
# task of four looks at another of its holder, anywhere in the set (a digest is as good as a random number), and if that
# has no pin at 32 more: as many pins are dropped as are made where room is short, so about a third of a set is without
# pins. PTTL is no use of a pin, and commands that the user may not use are done without.
_SETTLE = (
    _DOUBT
    + """
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
  local a, b, c, d, e = string.byte(digest, 1, 5)
  if e % 4 == 0 then
    local first = (((a * 256 + b) * 256 + c) * 256 + d) % redis.call('ZCARD', tasks)
    local pins, latest, last = string.sub(KEYS[1], 1, -1 - #digest), now, first
    repeat
      local some, found = redis.pcall('ZRANGE', tasks, first, last, 'WITHSCORES'), false
      for i = 1, #some, 2 do
        if redis.call('PTTL', pins .. some[i]) == -2 then
          redis.call('ZREM', tasks, some[i])
          latest, found = math.max(latest, tonumber(some[i + 1])), true
        end
      end
      last = last + 31
    until not found or last > first + 31
    if latest > now then doubt(KEYS[3], holder, latest) end
  end
end
for _, passed in ipairs(redis.call('ZRANGEBYSCORE', tasks, '-inf', now, 'LIMIT', 0, 2)) do
  redis.call('ZREM', tasks, passed)
end
return owner or holder
"""
)

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
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
for _, holder in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '+inf')) do
  counts[#counts + 1] = holder
  counts[#counts + 1] = -1
end
return counts
"""

_DOUBT_ALL = (
    _DOUBT
    + """
local now = redis.call('TIME')
for i = 2, #ARGV do
  doubt(KEYS[1], ARGV[i], now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[1])
end
"""
)


def _digest(script: str) -> str:
    return sha1(script.encode(), usedforsecurity=False).hexdigest()  # what EVALSHA knows a script by


_SCRIPTS = (_READ, _SETTLE, _FORGET, _COUNT, _DOUBT_ALL)
_READ_SHA, _SETTLE_SHA, _FORGET_SHA, _COUNT_SHA, _DOUBT_SHA = map(_digest, _SCRIPTS)


def setting_up(word: str) -> list[Command]:
    """What every new connection starts with: shows whether this server will do. Last `INFO` and `naming_epoch`."""
    loads: list[Command] = [("SCRIPT", "LOAD", script) for script in _SCRIPTS]
    return [*loads, counting(), INFO, *naming_epoch(word)]


def naming_epoch(word: str) -> list[Command]:
    """Makes `word` the epoch's if there is none, and answers with the epoch's word. A replica refuses the first."""
    return [("SET", EPOCH, word, "NX"), ASKING_EPOCH]


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
    keys = (PREFIX + key, HOLDERS, UNSURE)
    return ("EVALSHA", _SETTLE_SHA, 3, *keys, HELD, key, named, lives, holds, int(over), int(mode))


def forgetting(key: PinKey) -> Command:
    """Drops a pin and its holding."""
    return ("EVALSHA", _FORGET_SHA, 1, PREFIX + key, HELD, key)


def counting() -> Command:
    """Asks for the epoch's word, then each holder and the number of its tasks, -1 where it is not known.

    Drops tasks whose time has passed.
    """
    return ("EVALSHA", _COUNT_SHA, 3, HOLDERS, EPOCH, UNSURE, HELD)


def doubting(holders: Iterable[Holder], seconds: float) -> Command:
    """Says that for so long it is not known how many tasks these hold."""
    return ("EVALSHA", _DOUBT_SHA, 1, UNSURE, round(seconds * 1000), *map(_named, holders))


def holder_in(reply: object) -> Holder | None:
    """The holder that a pin's value names; None for what is no pin."""
    if not isinstance(reply, bytes):
        return None
    pool, _, backend = reply.decode("utf-8", "surrogateescape").partition("\0")
    return pool, backend


def counts_in(reply: list[object]) -> Mapping[Holder, int | None]:
    """The counts in an answer to `counting`; None where one is not known."""
    counts: dict[Holder, int | None] = {}
    for named, count in zip(reply[1::2], reply[2::2], strict=True):
        holder = holder_in(named)
        if holder and isinstance(count, int):
            counts[holder] = None if count < 0 else count
    return counts


def _named(holder: Holder) -> bytes:
    pool, backend = holder
    return f"{pool}\0{backend}".encode("utf-8", "surrogateescape")
