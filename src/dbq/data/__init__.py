"""Data sets, one per file or folder, as splits that yield batches."""
