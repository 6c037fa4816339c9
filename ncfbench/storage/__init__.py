"""Files that are complete or absent, the schemas of tables, locks, and free memory."""
