"""Copy folders: volume to work directory, data set to shards. Forked workers do what may block."""
