"""The page with the Python API. mkdocstrings makes it from the docstrings."""

PLACE = "reference/python.md"
_PAGE = """\
# Python API

`launcher.job` describes jobs and puts them into a cluster: [how to use it](../paddlejob.md#from-paddlejob).
`launcher.train` prints the numbers of a training program: [how to use it](../numbers.md).

::: launcher.job

::: launcher.train
"""


def page() -> str:
    """Return the text of the page."""
    return _PAGE
