"""Copy folders: from the volume to the work directory, and from a data set to shards."""
