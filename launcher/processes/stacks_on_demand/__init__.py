"""A folder for PYTHONPATH. It contains only `sitecustomize`, which Python imports when it starts."""
