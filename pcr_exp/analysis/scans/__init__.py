"""How few scans suffice: accuracy, time to accuracy and bytes at each scan group."""
