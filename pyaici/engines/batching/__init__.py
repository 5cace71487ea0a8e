"""Continuous batching for models that run in this process: schedules, steers and samples sequences.

An engine package brings the model as a `pyaici.engines.batching.model.Runner`, with its key-value cache and
its sampler. Nothing here needs torch.
"""
