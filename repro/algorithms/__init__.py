"""The algorithms: what trains, what it leaves, and how that is read out; one file each, and what several share."""
