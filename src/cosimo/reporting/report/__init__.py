"""The report: one self-contained HTML page that says whether a coupling can be trusted, and shows why.

    co.report(system, master, result).write("report.html")

`gathering` sorts what is given and works out what is missing, `sections` says it in words and tables, `figures` and
`graph` draw it, `packing` makes the rows of runs small, and `page` puts all of it into the template.
"""

from cosimo.reporting.report.page import Report, report
from cosimo.reporting.report.parameters import Variation

__all__ = ["Report", "Variation", "report"]
