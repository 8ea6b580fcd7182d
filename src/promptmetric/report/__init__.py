"""Results for the eye and for the next program."""
