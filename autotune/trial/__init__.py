"""Inside a trial's process: build the job, probe it, send one typed record back."""
