"""What every client of a server needs, whoever the server is: secrets that stay secret, and answers read with care."""
