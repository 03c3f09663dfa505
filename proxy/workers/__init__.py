"""Several processes that serve as one proxy, and a new generation of them in the old one's place."""
