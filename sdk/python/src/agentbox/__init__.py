"""Client of agentbox: run code of agents in isolated sandboxes on your own machine."""

from agentbox.errors import *  # noqa: F403
