"""Gaussian processes on training rows: what exact, nearest-neighbor and collapsed models share."""
