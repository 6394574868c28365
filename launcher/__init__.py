"""paddle-launcher: N plain Kubernetes pods become one PaddlePaddle training job."""

__version__ = "0.1.0"
