"""Reports: stored rows as tables in the paper's layout, figures, findings and one page."""
