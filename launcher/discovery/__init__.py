"""Find the peers of this launcher. `finder.py` has the interface and the list of all finders."""
