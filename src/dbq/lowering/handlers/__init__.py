"""What each kind of layer or function does to a value."""
