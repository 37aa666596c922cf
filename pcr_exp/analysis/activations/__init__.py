"""What compressing activations saves, and which errors it makes."""
