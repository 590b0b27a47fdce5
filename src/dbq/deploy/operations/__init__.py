"""The operations of a Program, one file each: checks, meaning in numpy, bytes, ONNX forms."""
