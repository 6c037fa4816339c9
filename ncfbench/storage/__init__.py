"""Files that are complete or absent, their schemas with versions, locks, and free space."""
