"""One layer after the other, fitted to the outputs of the float network."""
