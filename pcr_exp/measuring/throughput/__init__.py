"""Images per second of our scan levels: a job, its measurement, and all levels in turns."""
