"""Reports: the rows of a store -> one page with findings, the paper's tables and figures.

In: a store of `runs`. Out: HTML or Markdown. May import all of the lab, and pictures for its style.
"""
