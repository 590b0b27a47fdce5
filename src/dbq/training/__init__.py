"""Training: from a recipe to a directory with a quantized network. `run.train` is the way in."""
