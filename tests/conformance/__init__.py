"""What every broker must do. Nothing in here knows how any of them does it."""
