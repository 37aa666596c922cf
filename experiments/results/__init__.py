"""Code shared by studies and the pages in results/: study programs, and the origin of each folder."""
