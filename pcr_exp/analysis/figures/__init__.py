"""The figures: each takes the rows it draws and returns a matplotlib Figure."""
