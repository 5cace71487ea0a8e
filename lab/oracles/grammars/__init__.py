"""Random context-free grammars, their texts in each notation, and who derives what."""
