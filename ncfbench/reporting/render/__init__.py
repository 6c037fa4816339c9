"""Renderers of tables, one module for each format, and the HTML page."""
