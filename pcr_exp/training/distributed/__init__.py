"""Training in several processes: what they send each other, and how much of it."""
