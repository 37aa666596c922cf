"""How fast loaders are, side by side on the same images: formats, jobs, processes, rows."""
