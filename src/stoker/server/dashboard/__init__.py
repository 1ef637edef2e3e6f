"""The dashboard: pages at `/ui/` that show a queue and mend it, from templates, without a build step.

    routes      the table of pages: path, permission, handler
    dashboard   serves the table: the session, the rights, the error page
    page        one request to a page: who asks, and what it may ask of the queue
    sessions    logins: a sealed cookie, and the token against forged forms
    actions     the table of changes: what is hit, the question before it, the command
    pages/      a handler a page: they ask commands, and hand the replies to a template
    templates/  a template a page; `layout.html` is around all, `macros.html` has what pages share
    rendering   templates, and how values read
    drawing     timelines and sparklines as SVG
    payloads    payloads and results: as a tree, redacted, editable or not
    live        the stream that tells a browser when to look again
    assets      scripts and styles: ours, and the vendored ones with their checksums

A page asks the same commands as any client, through the same gate. No page knows the engine.
"""
