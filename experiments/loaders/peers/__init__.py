"""Other loaders, behind one protocol, so that they are measured as ours is."""
