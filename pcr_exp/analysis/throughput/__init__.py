"""How fast loaders are: ours and its peers."""
