"""How pictures are stored: JPEG scans, the PCR record, its index, its encoder."""
