"""Savings and costs of gradient compression, next to the numbers that 3LC published."""
