"""What one inference costs in full adders and bits, by the rules of the paper."""
