"""CIFAR-10: its files, its archives, and the two-class task made from it."""
