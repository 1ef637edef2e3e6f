"""The commands that this application adds to `manage.py`."""
