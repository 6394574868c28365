"""Environment variables for tests."""

from __future__ import annotations

SEED_001 = {
    "JOB_NAME": "paddle-cluster-job",
    "JOB_PATH": "/home/jobpath",
    "JOB_NAMESPACE": "default",
    "TRAIN_CONFIG_DIR": "recommendation",
    "CONF_PADDLE_NIC": "eth0",
    "CONF_PADDLE_PORT": "7164",
    "CONF_PADDLE_PORTS_NUM": "2",
    "CONF_PADDLE_PORTS_NUM_SPARSE": "2",
    "CONF_PADDLE_GRADIENT_NUM": "3",
}
