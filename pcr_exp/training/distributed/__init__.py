"""Training in several processes: the data that they exchange, and its volume."""
