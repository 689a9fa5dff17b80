"""Where attempts run: on the loop, or on threads."""
