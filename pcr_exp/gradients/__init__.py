"""What processes send each other while they train: gradients as bytes, and back."""
