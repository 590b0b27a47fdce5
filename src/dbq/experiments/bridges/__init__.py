"""dbq inside other people's libraries: one module for each, which nothing else of ours imports."""
