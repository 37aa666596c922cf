"""What is kept between forward and backward: convolution inputs, compressed or computed again."""
