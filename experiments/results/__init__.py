"""Shared by studies and the pages in results/: the program of a study, and the origin of each folder."""
