"""The figures that the paper printed (KDD 2017)."""
