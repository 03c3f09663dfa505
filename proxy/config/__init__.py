"""YAML in, frozen values out; or every mistake in the file at once, each with its line and what is allowed there."""

from proxy.config.describe import describe
from proxy.config.loading import load, parse, read_file
from proxy.config.problems import ConfigError, Problem
from proxy.config.values import Admin, Config, Listen, Log, Pins, PoolConfig

__all__ = [
    "Admin",
    "Config",
    "ConfigError",
    "Listen",
    "Log",
    "Pins",
    "PoolConfig",
    "Problem",
    "describe",
    "load",
    "parse",
    "read_file",
]
