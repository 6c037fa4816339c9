"""Item functions g: from an item's id or words to its embedding, one module each."""
