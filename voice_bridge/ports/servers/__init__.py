"""Who answer: child processes and remote servers."""
