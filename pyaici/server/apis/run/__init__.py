"""`POST /v1/run`: a model writes under a controller's control, and every event is reported."""
