"""A job while it runs, as a terminal or a log shows it."""
