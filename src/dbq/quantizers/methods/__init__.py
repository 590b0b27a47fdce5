"""Other authors' quantizers, one per file, behind the same contract."""
