"""What figures are made of: targets and their sweeps, data, claims, pictures and pages, and what is published."""
