"""Which scan script is worth its bytes and its decoding time: a search on native images.

`python -m pcr_exp.measuring.scan_scripts` writes the tables of outputs/scan_scripts; `family` has the scripts
that are searched, `measure` what is measured of each, `writers` how a script can be written.
"""
