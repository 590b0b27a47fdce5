"""Watchers that follow the progress of a run: the terminal, TensorBoard."""
