"""A program as an ONNX model:
exact, or in the integer operations that other runtimes accelerate.
"""
