"""The page with the Python API. mkdocstrings makes it from the docstrings."""

PLACE = "reference/python.md"
_PAGE = """\
# Python API

`launcher.job` describes jobs and puts them into a cluster: [how to use it](../paddlejob.md#from-paddlejob).
`launcher.train` prints the numbers of a training program: [how to use it](../numbers.md).
`launcher.paddle_heter` repairs the heterogeneous mode of Paddle: [how to use it](../heter.md#repair-paddle).

::: launcher.job

::: launcher.train

::: launcher.paddle_heter
"""


def page() -> str:
    """Return the text of the page."""
    return _PAGE
