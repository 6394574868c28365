"""Helpers that all other packages use: files, processes, log, API client. It imports none of them."""
