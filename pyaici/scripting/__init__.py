"""Controllers as scripts in Python and JavaScript: files, their arguments, checks without a model."""
