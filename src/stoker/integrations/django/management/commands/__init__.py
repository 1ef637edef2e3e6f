"""What this application adds to `manage.py`."""
