"""The mathematics: how weights and activations become a few levels, and how that is learned."""
