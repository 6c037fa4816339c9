"""Published data sets, one module each, and a synthetic one."""
