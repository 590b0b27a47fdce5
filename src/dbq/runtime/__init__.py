"""Running a Program: `reference` is the specification, `native` the engine."""
