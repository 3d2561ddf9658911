"""What each method gets: an answer from memory, or a place in a server's queue. One module for each kind of thing."""
