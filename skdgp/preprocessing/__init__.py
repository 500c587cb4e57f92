"""What happens to columns and targets before a model sees them."""
