"""Questions put to a worker, and everything that is looked at afterwards."""
