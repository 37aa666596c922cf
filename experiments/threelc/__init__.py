"""What compressing gradients saves, and costs, beside the numbers that 3LC published."""
