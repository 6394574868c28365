"""The floor: what every room stands on. It knows no room."""
