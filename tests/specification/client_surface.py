"""Prints the operations and model fields of the generated Lance Namespace client as JSON.

It is run by the Python of the environment that the client is installed in, so it imports nothing else.
"""

import json
from importlib.metadata import version

import lance_namespace_urllib3_client as client

VARIANTS = ("_with_http_info", "_without_preload_content")


def surface() -> dict[str, object]:
    apis = [getattr(client, name) for name in dir(client) if name.endswith("Api")]
    methods = {name for api in apis for name in vars(api) if not name.startswith("_")}
    operations = {name for name in methods if not name.endswith(VARIANTS)}
    models = {
        name: sorted(field.alias or key for key, field in model.model_fields.items())
        for name, model in vars(client.models).items()
        if isinstance(model, type) and hasattr(model, "model_fields")
    }
    return {
        "version": version("lance-namespace-urllib3-client"),
        "operations": sorted("".join(map(str.capitalize, name.split("_"))) for name in operations),
        "models": dict(sorted(models.items())),
    }


if __name__ == "__main__":
    print(json.dumps(surface()))
