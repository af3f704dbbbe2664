"""One server for people and programs: models, requests translated together, an HTTP API, and a page."""
