"""Reports on failed jobs, as they are written and sent. `from jobwell.reports import Report`: what `@app.on_report` gets."""

from jobwell.core.letter import Attachment, Report

__all__ = ["Attachment", "Report"]
