"""Data sets, one a file. Each gives images as uint8 tensors [N, C, H, W] and integer labels."""
