"""Users' own files: what their columns mean, and the data set made of them."""
