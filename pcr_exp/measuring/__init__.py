"""Programs that measure without training: loaders beside peers, image quality, activation codecs."""
