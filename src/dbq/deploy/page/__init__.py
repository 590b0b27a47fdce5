"""A network as a page: one HTML file with the engine and the network inside."""
