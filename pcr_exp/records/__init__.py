"""Storage of images as PCR records with an index, written by `prepare`, read by `reader` and `single`.

Images pass through the codecs of `images/`. Records hold pieces of scan groups and know no image format.
"""
