"""Image files: the codec interface that records read and write through, and its JPEG implementations.

`codec` defines the interface, and `decode` the two JPEG codecs. They build on markers and scans (`jpeg`),
lossless transcoding (`transcode`), decoding at a scan group (`smoothing`, `decoded`) and the C libraries
(`decoder`, `libturbojpeg`). `resample` and `ms_ssim` work on pixels.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcr_exp.images.decode import decode_jpeg

__all__ = ["decode_jpeg"]


def __getattr__(name: str) -> Any:
    """Import names on first use, because the decoders are large."""
    if name not in __all__:
        raise AttributeError(f"module 'pcr_exp.images' has no attribute {name!r}")
    from pcr_exp.images import decode

    return getattr(decode, name)
