"""Plans: which precision each layer gets. Data only; no torch."""
