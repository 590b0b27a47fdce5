"""The branch quantizer of the paper: sums of scaled ternary tensors, trained through soft steps."""
