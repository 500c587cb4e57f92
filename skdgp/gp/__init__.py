"""Building blocks that inference schemes share."""
