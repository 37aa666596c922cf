"""JPEG: markers and scans, lossless transcoding, decoding at a scan group, resampling, MS-SSIM."""
