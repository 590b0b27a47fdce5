"""The .dbq file: its frame, the parts that operations are made of, packed weights."""
