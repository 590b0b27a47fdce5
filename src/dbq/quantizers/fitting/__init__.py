"""Numerical fitting that several quantizers share."""
