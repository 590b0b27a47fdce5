"""A Program as C source for microcontrollers: integers only, no allocation, no library."""
