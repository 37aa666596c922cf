"""What throughput and time to expect: the paper's model, plans, and how well they hold."""
