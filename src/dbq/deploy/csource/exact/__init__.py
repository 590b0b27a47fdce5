"""From a program to integers, exactly: ranges of sums, lines in place of scales, dead channels."""
