"""PCR and the related methods in every combination: where bytes went, and the cost."""
