"""How results look: as JSON fields and as tables."""
