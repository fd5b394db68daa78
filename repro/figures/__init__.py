"""What figures are made of: targets and their sweeps, data collected, pictures, and what is published."""
