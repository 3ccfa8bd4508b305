"""What every client of a server needs: requests, retries, secrets that stay secret, and responses read with care."""
