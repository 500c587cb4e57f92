"""Optimizers that do not depend on Gaussian processes."""
