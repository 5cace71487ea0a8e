"""The core of all APIs that answer: the grammar of an answer, and its reader, from one description."""
