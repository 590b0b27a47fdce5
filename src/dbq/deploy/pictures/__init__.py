"""Pictures: from an image file to the pixels a network wants, and from its outputs to named classes."""
