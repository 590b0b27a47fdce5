"""The paper's own numbers (printed) and the tables that set ours beside them (tables)."""
