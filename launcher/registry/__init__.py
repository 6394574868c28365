"""Read what an image runs from its registry, for commands on a laptop. A registry is not trusted."""
