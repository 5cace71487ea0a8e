"""Inference engines that controllers steer."""
