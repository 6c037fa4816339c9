"""Figures that the paper printed (KDD 2017, tables 2 to 4)."""
