"""From a quantized network to an integer program: the only bridge between the two halves."""
