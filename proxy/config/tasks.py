"""A pool's `tasks:`: where its tasks live, and how their owners are found."""

import re
from dataclasses import dataclass
from typing import get_args

from proxy.config.fields import Field
from proxy.config.forms import boolean, text, words
from proxy.config.sections import Key, Keys
from proxy.routing.pools import State

_STATES: tuple[State, ...] = get_args(State)
_TAG_GROUP = "backend"


@dataclass(frozen=True, slots=True)
class Tasks:
    """Each as in PoolConfig."""

    state: State = "local"
    search: bool = True
    owner_tag: re.Pattern[str] | None = None


def _owner_tag(field: Field) -> re.Pattern[str] | None:
    written = field.text("a regular expression")
    pattern = None if written is None else field.compiled(re.compile, written)
    if pattern is not None and _TAG_GROUP not in pattern.groupindex:
        field.problem(message=f"no group {_TAG_GROUP}", allowed=f"(?P<{_TAG_GROUP}>...) around the backend's id")
        return None
    return pattern


_STATE: Key[State, State] = Key(
    "state",
    words(_STATES),
    Tasks().state,
    "`local`: a task lives in the process that made it. `shared`: every backend can answer for it.",
    "shared",
)
_SEARCH = Key(
    "search",
    boolean(),
    Tasks().search,
    "`true`: the backends are asked for the owner of a task that nobody knows, with the client's own bytes and "
    "credentials. `false`: such a task goes to one backend, by a hash of its id.",
    "false",
)
_OWNER_TAG = Key(
    "owner_tag",
    text(f"regular expression with a group `{_TAG_GROUP}`", _owner_tag, rf"\(\?P<{_TAG_GROUP}>", bare=False),
    None,
    f"Where the id of a task names its backend: the group `{_TAG_GROUP}`, from the id's start on, is a backend's id.",
    "'^(?P<backend>[a-z0-9-]+)\\.'",
)
TASKS = Keys("Where a pool's tasks live, and how their owners are found.", (_STATE, _SEARCH, _OWNER_TAG))


def read_tasks(field: Field) -> Tasks | None:
    """`tasks:` of a pool."""
    section = TASKS.section(field)
    return None if section is None else Tasks(section.take(_STATE), section.take(_SEARCH), section.take(_OWNER_TAG))
