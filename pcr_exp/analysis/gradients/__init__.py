"""What compressing gradients saves, and costs."""
