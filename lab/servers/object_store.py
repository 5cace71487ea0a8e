"""An object store with the interface of S3, moto's, in a thread of this process on the loopback interface."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "aici"


@contextmanager
def running_object_store() -> Iterator[dict[str, str]]:
    """Runs a store with an empty bucket until the block ends; yields variables by which clients find it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        variables = {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT": f"http://{host}:{port}",
            "AWS_ALLOW_HTTP": "true",
        }
        client: Any = boto3.client(
            "s3",
            endpoint_url=variables["AWS_ENDPOINT"],
            region_name=variables["AWS_REGION"],
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        client.create_bucket(Bucket=BUCKET)
        yield variables
    finally:
        server.stop()
