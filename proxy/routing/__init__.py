"""Pure decisions: no sockets, clocks, await or logging; everything here is tested by calling it."""
