"""Runs on disk: folders, records, schedules, and the progress that users see."""
