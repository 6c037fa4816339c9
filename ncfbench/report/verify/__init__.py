"""The second computation: every row and number again, from the raw records."""
