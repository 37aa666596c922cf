"""Photographs that public repositories hold, laid in the layouts of their datasets; and what all sets are."""
