"""Unit costs of an iteration, the cost model that adds them up, and the roofline."""
