"""Renderers of the report: terminal, Markdown, LaTeX, CSV, HTML and figures."""
