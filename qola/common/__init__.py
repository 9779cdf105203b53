"""Small modules that the core's packages share, each with a purpose of its own."""
