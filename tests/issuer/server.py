"""Serves Canaille with the keys, users and groups that it reads from standard input; see `issuer`."""

import json
import sys

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from werkzeug.serving import make_server


def serve(port, keys, users, client, password):
    app = create_app(
        {
            "SECRET_KEY": "tests",
            "SERVER_NAME": f"127.0.0.1:{port}",
            "PREFERRED_URL_SCHEME": "http",
            "CANAILLE": {"DATABASE": "memory", "ENABLE_PASSWORD_COMPROMISSION_CHECK": False},
            "CANAILLE_OIDC": {"ACTIVE_JWKS": keys},
        }
    )
    with app.app_context():
        add_content(Backend.instance, users, client, password)
    server = make_server("127.0.0.1", port, app, threaded=True)
    print("ready", flush=True)
    server.serve_forever()


def add_content(backend, users, client, password):
    lake = models.Client(
        **client,
        client_name="lake",
        client_uri="http://127.0.0.1",
        redirect_uris=["http://127.0.0.1/back"],
        grant_types=["password"],
        response_types=["code"],
        scope=["openid", "profile", "groups"],
        token_endpoint_auth_method="client_secret_post",
    )
    backend.save(lake)
    lake.audience = [lake]
    backend.save(lake)
    members = {}
    for name, groups in users.items():
        user = models.User(
            user_name=name, family_name=name, formatted_name=name, emails=[f"{name}@example.org"]
        )
        backend.save(user)
        backend.set_user_password(user, password)
        for group in groups:
            members.setdefault(group, []).append(user)
    for group, belonging in members.items():
        backend.save(models.Group(display_name=group, members=belonging))


if __name__ == "__main__":
    serve(**json.loads(sys.stdin.readline()))
