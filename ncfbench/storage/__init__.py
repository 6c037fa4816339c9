"""Files that are whole or absent: atomic Parquet and JSON, and the schemas with their versions."""
