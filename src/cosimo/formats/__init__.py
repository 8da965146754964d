"""Files: scenarios, SSP packages, results, and exported FMUs."""
