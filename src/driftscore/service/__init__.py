"""The service: HTTP in and out, and the page. `driftscore serve` starts it.

    requests -> [security: host, token, origin] -> [bodies: size, time] -> routes -> [work: a queue]

`app.create_app(settings)` returns the application, `state.ServiceState` is what its routes share.
Sound that a request brings is decoded from memory by libsndfile alone; nothing is written to disk,
and no path, URL, module or pickle that a request names is opened.
"""
