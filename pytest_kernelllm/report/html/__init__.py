"""The report as one HTML page that needs no network. Needs the extra ``html``."""
