"""The documentation site: what mkdocs needs beside mkdocs.yml. `make docs` builds it into site/."""
