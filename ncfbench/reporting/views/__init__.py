"""Views: the tables that are made of the rows of runs, data sets and choices."""
