"""What data echoing saves, and costs."""
