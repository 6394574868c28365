"""The files on the volume: lease, record, journal, passes, marks. These functions block while the volume blocks."""
