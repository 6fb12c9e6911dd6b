"""The service: HTTP in and out, and the page."""
