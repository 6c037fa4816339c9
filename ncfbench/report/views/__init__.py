"""Views: the tables that are made of rows, ready for every renderer."""
