"""Who owns which task: the seam PinStore and its implementations."""
