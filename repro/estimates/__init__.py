"""What a command would do and take, told without doing it: states, minutes, disk."""
