"""Paths that have most of the traffic, found without a search through all patterns."""

from __future__ import annotations

from collections.abc import Mapping

from router.api.http.asgi import App, Receive, Scope, Send


class DirectPaths:
    """An ASGI application in front of the routes: a POST to one of these paths goes straight to its
    endpoint, all else to the routes."""

    def __init__(self, posts: Mapping[str, App], routes: App) -> None:
        self._posts = posts
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        direct = self._posts.get(scope["path"]) if scope.get("method") == "POST" else None
        await (direct or self._routes)(scope, receive, send)
