"""Our loader against others (`contest`), where its time goes (`speed`), and many workers (`scale_page`)."""
