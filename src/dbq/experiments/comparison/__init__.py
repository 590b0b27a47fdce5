"""One recipe, many methods, the same budget."""
