"""Verification: recomputes every row and number of the tables from the raw records."""
