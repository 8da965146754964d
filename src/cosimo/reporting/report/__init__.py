"""The report: one self-contained HTML page that says whether a coupling can be trusted, and shows why.

    co.report(system, master, result).write("report.html")

`contents` sorts what is given and computes what is missing, `sections` says it in words and tables, `charts` and
`diagram` draw it, `run_signals` makes the rows of runs small, and `page` puts all of it into the template.
"""

from cosimo.reporting.report.contents import Variation
from cosimo.reporting.report.page import Report, report

__all__ = ["Report", "Variation", "report"]
