"""What exists only for speed: each piece names the plain lines that it replaces, and a test holds the two equal."""
