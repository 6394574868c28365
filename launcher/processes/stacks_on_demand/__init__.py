"""A folder for PYTHONPATH with nothing in it but the module that Python imports by itself when it starts."""
