"""One static page of everything that is published: `python -m repro.report`, which writes `report.html`.

`curves.py` takes the curves that can be explored from published data; `page.py` fills in the template; `report.css` and
`report.js` are the page's own, and plotly.js is embedded, so that the page is one file that needs no network. What is
published is collected by `repro.figures.published`.
"""
