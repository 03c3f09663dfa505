"""Which version this is."""

from importlib.metadata import PackageNotFoundError, version


def proxy_version() -> str:
    """The installed version of this distribution."""
    try:
        return version("mcp-routing-proxy")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"
