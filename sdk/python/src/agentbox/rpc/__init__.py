"""The documented client of ``sandbox.v1``: sandboxes by gRPC."""

from agentbox.rpc._async import AsyncSandbox
from agentbox.rpc._sync import Sandbox

__all__ = ["AsyncSandbox", "Sandbox"]
