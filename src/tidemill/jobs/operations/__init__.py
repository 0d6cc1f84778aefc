"""What callers can do with jobs, and what a worker does to carry them out."""
