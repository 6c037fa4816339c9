"""Runs on disk: folders, arms and identity, recorders, schedules; progress shown to users."""
