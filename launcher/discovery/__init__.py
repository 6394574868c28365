"""Find the peers of this launcher. finder.py contains the interface of all finders, and the list of finders."""
