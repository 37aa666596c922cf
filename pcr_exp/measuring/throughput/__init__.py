"""Images per second of loaders: interleaved, in processes of their own."""
