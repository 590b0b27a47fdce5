"""From a recipe to a trained network."""
