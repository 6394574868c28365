"""How a launcher finds its peers. finder.py has the interface of all finders, and a line for each."""
