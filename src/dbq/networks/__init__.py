"""Plain float networks and their published weights."""
