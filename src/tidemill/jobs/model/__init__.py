"""Values of jobs: what is requested, planned, run, covered and recorded."""
