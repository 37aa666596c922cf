"""What all questions share: runs as rows, settings, statistics over seeds, tables, the look of figures."""
