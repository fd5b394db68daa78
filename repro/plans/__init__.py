"""From a command line to the runs that it asks for: composed by Hydra, checked, and what they share."""
