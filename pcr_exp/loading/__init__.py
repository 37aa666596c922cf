"""How records reach the model: order, fetch-ahead, decode, augment, batch; the scan policy."""
