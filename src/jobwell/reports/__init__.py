"""Reports as files: text, CSV, JSON, HTML, XLSX. Each takes the jobs as a stream and holds one page of them at most."""
