"""The processes of one member: started, watched, ended, and their output kept. Knows neither Paddle nor the gang."""
