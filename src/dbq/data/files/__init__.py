"""Data sets of image files, one folder a class among them."""
