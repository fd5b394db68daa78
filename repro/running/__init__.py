"""One run: trained by Lightning, measured as asked, and recorded."""
