"""Where a pool's backends come from: the seam DiscoverySource and its implementations."""
