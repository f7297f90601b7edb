"""Clients of other systems, with an agentbox server behind them.

:mod:`agentbox.compat.agentsandbox` has AgentSandbox's client and its four agent
tools, :mod:`agentbox.compat.autocoder` the calls of autocoder's sandbox manager.
"""

from agentbox.compat.agentsandbox import AgentSandboxClient, list_directory, read_file, remove_workspace, run_command, write_file
from agentbox.compat.autocoder import SandboxInfo, SandboxManager

__all__ = [
    "AgentSandboxClient",
    "SandboxInfo",
    "SandboxManager",
    "list_directory",
    "read_file",
    "remove_workspace",
    "run_command",
    "write_file",
]
