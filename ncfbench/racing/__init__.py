"""Races of arms by their curves: the rule and its rungs, and arms that are any program."""
