"""Controllers as scripts in Python and JavaScript: files, arguments, checks without a model."""
