"""A plugin for Hermes: adds the conversation's name to requests that go to session-slot-router, and to no others.

Two middlewares do the same thing. Hermes calls every `llm_request` middleware with the same request and then uses the
last request that was *returned*, so that whoever returns a copy drops what the others did. This plugin therefore edits
the request it is given and returns nothing: copies made of it afterwards have the edit as well. If a plugin before it
returned a copy, the edit is not in there; `llm_execution`, which hands one request from plugin to plugin, then adds it.
"""

import enum
import logging
import os

from .identity import client_type, routing_id, targets_router

logger = logging.getLogger(__name__)

AGENT_NAME = "hermes"

# The router refuses longer ids; such a request is better off without one.
LONGEST_ID_BYTES = 512


def register(ctx):
    """Called by Hermes once, when it loads the plugin."""
    ctx.register_middleware("llm_request", add_session)
    ctx.register_middleware("llm_execution", keep_session)


def add_session(request=None, **context):
    """`llm_request`: sets the members in the request itself."""
    body = extra_body(request, context)
    if body is not None:
        request["extra_body"] = body


def keep_session(request=None, next_call=None, **context):
    """`llm_execution`: sets them in what is really sent, whatever other plugins made of the request."""
    body = extra_body(request, context)
    # What goes wrong in `next_call` is the provider's matter: it has to reach Hermes as it is.
    return next_call(request if body is None else {**request, "extra_body": body})


def extra_body(request, context):
    """The request's `extra_body` with our members set and all else kept; None where nothing is to be added."""
    try:
        members = session_members(**context)
        # A new dictionary: the old one may be Hermes's own settings.
        return {**(request.get("extra_body") or {}), **members} if members else None
    except Exception as error:  # The request matters more than its cache.
        logger.debug("no session added: %s", type(error).__name__)
        return None


def session_members(session_id=None, platform=None, base_url=None, **_):
    """What the router is told; empty if the request does not go there or has no session."""
    port = os.environ.get("SESSION_SLOT_ROUTER_PORT", "")
    if not session_id or not targets_router(str(base_url or ""), port):
        return {}
    if len(session_id.encode()) > LONGEST_ID_BYTES:
        return {}
    return {
        "agent_name": AGENT_NAME,
        "agent_session_id": routing_id(session_id),
        "client_type": client_type(platform_name(platform), session_id),
    }


def platform_name(platform):
    """Hermes's platforms are texts in some places and members of an Enum in others."""
    value = platform.value if isinstance(platform, enum.Enum) else platform
    return "" if value is None else str(value)
