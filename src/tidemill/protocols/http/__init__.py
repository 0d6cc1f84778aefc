"""What all protocols share: routing, reading requests, running handlers, and rendering errors.

app.py                      the ASGI application: threads, request ids, the error boundary
routing.py                  routes on raw paths
call.py, operations.py      a request as handlers see it, responses to it, and the operations it can call
fields.py, job_requests.py  fields of bodies, ids in paths, job options
addresses.py                addresses of clients, also behind proxies
arrow.py                    Arrow streams in bodies
"""
