"""Who calls, and what they may do.

- `authentication`: finds the caller of a request by its API key or bearer token
- `tokens`: signs and verifies the tokens that this server issues
- `oidc`, `issuer_keys`: verify tokens of OpenID issuers, with keys that they publish
- `failed_logins`: slows down callers who guess
- `directory`: the clients, roles and grants of the catalog, as of less than two seconds ago
- `grants`: what a caller may do where
- `cipher`: the secret key of the installation

The HTTP layer calls `Authentication`; operations call the `Authorizer` port of the catalog. Nothing below
`server` imports this package.
"""
