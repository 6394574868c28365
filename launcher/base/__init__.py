"""Helpers that other packages use: files, processes, log, API client. This package imports no other package."""
