"""Transformations of columns and targets before training."""
