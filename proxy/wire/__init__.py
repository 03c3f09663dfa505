"""HTTP/1.1 on sockets, and the pure readers of its bytes."""
