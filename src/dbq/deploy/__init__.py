"""The deployed half:
the integer program, its file, its meaning in numpy, and the engine that runs it. No torch.
"""
