"""Who the peers are. A way of finding them is a module with `make`, and a line in finder.py."""
