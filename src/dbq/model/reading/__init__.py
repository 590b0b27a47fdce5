"""How a network of any make is read: one run of it, recorded."""
