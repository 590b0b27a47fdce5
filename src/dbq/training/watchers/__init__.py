"""Who is told about the progress of a run: the terminal, TensorBoard."""
