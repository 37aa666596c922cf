"""More machines than one has, simulated; and how the cost of an order grows with the images, measured."""
