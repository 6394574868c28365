"""Jobs for today's Paddle, described in few words, as plain Kubernetes objects whose pods run the launcher."""
