"""Quantizing a trained network without labels and without its training: from outputs, layer by layer."""
