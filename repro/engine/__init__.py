"""What runs on a compiled game: sampled traversals and play, and exact values."""
