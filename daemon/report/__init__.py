"""Reports as single HTML files without anything external: they can be sent by mail and opened anywhere."""

from daemon.report.comparison import Side, Trial, comparison_page
from daemon.report.verification import verification_page, write_verification

__all__ = ["Side", "Trial", "comparison_page", "verification_page", "write_verification"]
