"""Vocabularies: their images (docs/vocabulary.md), and the tokenizer for controllers."""

from __future__ import annotations

from aicirt.vocab.image import build_image
from aicirt.vocab.reader import VocabularyImage

__all__ = ["VocabularyImage", "build_image"]
