"""What happens to a user's nn.Module: reading it, quantizing it in place, calibrating it."""
