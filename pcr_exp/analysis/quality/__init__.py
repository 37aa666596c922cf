"""What is lost at each scan group: MS-SSIM and bytes."""
