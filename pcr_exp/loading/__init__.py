"""How records become batches.

A batch's way: `order` (laid out by `lanes`), `fetch`, `reads`, `workers` (in `shared_buffers`), `transform`,
`stream`, `loader`. `stage` is where something may stand between them: nothing on the plain way, an echo from
`echo/`. `runs/` opens a `RecordLoader`; `fixed_sample` is what policies' probes look at.
"""
