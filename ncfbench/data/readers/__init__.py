"""Readers of text lines, rows, archives and Parquet files in bounded memory."""
