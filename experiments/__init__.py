"""Thin runners, one per kind of question."""
