"""Report: compares the runs of a folder and shows the results in every format."""
