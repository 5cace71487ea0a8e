"""Controllers in vLLM, as a plugin and as an engine.

vLLM finds the plugin by its entry points. `VllmEngine` is for programs that need every verb and events.
"""
