"""PCR and the related methods in every combination: where bytes went, and what that cost."""
