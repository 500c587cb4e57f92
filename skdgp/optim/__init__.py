"""Optimizers that know nothing of Gaussian processes."""
