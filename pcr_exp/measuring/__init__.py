"""Programs that measure without training runs: loaders, image quality, what a task tolerates, speed."""
