"""Start, watch and end the processes of one member, and keep their output. Knows neither Paddle nor the gang."""
