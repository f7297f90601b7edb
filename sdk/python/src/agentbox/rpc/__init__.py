"""The documented client of ``sandbox.v1``: sandboxes by gRPC."""

try:
    import grpc as _grpc  # noqa: F401
except ImportError as e:
    raise ImportError("agentbox.Sandbox needs grpcio: pip install grpcio") from e

from agentbox.rpc._async import AsyncSandbox
from agentbox.rpc._sync import Sandbox

__all__ = ["AsyncSandbox", "Sandbox"]
