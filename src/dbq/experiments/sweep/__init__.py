"""A grid of runs over recipe keys."""
