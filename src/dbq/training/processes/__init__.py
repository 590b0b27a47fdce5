"""The processes of a run: torchrun, synchronised batch norm, signals."""
