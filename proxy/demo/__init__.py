"""What `mcp-routing-proxy demo` needs besides the proxy: servers that keep tasks in their own memory, and a client."""
