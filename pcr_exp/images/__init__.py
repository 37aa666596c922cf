"""Image files: the codec interface that records read and write through, and JPEG behind it.

`codec` is the interface, `decode` has JPEG's two codecs. They need markers and scans (`jpeg`), lossless
transcoding (`transcode`), decoding at a scan group (`smoothing`, `decoded`) and the C library
(`decoder`, `libturbojpeg`). `resample` and `ms_ssim` work on pixels.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcr_exp.images.decode import decode_jpeg

__all__ = ["decode_jpeg"]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: decoders are large."""
    if name not in __all__:
        raise AttributeError(f"module 'pcr_exp.images' has no attribute {name!r}")
    from pcr_exp.images import decode

    return getattr(decode, name)
