"""Images and labels: each dataset's official layout is read as a list of samples."""
