"""Image files: the codec seam that records read and write through, and JPEG behind it.

`codec` is the seam, `decode` has JPEG's two codecs. They need markers and scans (`jpeg`), lossless
transcoding (`transcode`), decoding at a scan group (`smoothing`, `decoded`) and the C library
(`libturbojpeg`). `resample` and `ms_ssim` work on pixels.
"""
