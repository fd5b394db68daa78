"""What an output folder holds: runs by their keys, finished trainings, and what killed processes have left."""
