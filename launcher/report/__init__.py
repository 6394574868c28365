"""Write the report of a job: one HTML file. It says who failed and why, what was lost, and how fast the job was."""
