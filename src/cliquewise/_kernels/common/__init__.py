"""What the other rooms share."""
