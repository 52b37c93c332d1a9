"""What several adapters share. Knows no adapter and no external service of its own."""
