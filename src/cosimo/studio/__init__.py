"""The studio: a page in the browser on which the step, the master and the couplings are turned, and the verdict moves.

It owns no model and computes nothing of its own: `page_state` asks `analyse` and the same `Model` as every verb,
`processes` starts the commands that a user would type, `server` shows what comes out.
"""
