"""What the volume holds: lease, record, journal, passes, marks. Everything here blocks as long as the volume does."""
