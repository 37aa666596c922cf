"""Messages between training processes: gradients as bytes, and back."""
