"""Which images and labels: each dataset's official layout becomes a list of samples."""
