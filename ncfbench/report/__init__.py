"""From run folders to the paper's tables: what is compared with what, and what it says."""
