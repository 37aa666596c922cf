"""How images are stored: the PCR record and its index, written by `prepare`, read by `reader` and `single`.

Images pass through the codecs of `images/`: records know pieces of scan groups, and no image format.
"""
