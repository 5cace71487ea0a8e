"""The engine for GGUF models, on llama.cpp."""
