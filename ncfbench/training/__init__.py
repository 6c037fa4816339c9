"""One run: its plan, compiled step, timed loop, probe, recall, checkpoints, and session."""
