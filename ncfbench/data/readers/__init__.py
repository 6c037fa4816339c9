"""Readers of files as streams: lines, tables of rows in several formats, and values of columns."""
