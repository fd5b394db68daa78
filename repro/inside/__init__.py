"""Looking into what was trained: agents, what they play at an infoset, what that is worth, and pictures of it."""
