"""One run: the jit-compiled step, the loop with its clock, probe, recall, checkpoints."""
