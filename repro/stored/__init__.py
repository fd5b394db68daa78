"""What an output folder holds: trainings by their keys, what was measured of them, what killed processes have left."""
