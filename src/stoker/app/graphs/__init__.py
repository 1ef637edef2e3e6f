"""Drawings of workflows: one layout, and a renderer each for the terminal, for SVG and for Mermaid.

`boxes.py` says what a step looks like. `layout.py` decides where each step stands and where lines pass, `routes.py`
where lines run between two layers. `terminal.py`, `svg.py` and `mermaid.py` write it down. Nothing here knows a queue.
"""
