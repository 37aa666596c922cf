"""Loading: how records become batches.

A batch passes through `order` (laid out by `lanes`), `fetch`, `reads`, `workers` (in `shared_buffers`),
`transform`, `stream` and `loader`. `stage` is an optional step between them: none by default, or an echo from
`echo/`. `runs/` opens a `RecordLoader`; `fixed_sample` provides the images that policies probe.
"""
