"""The engine for models of the Hugging Face Transformers library."""
