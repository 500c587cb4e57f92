"""Modules whose examples need an extra that is not there are left out."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("botorch") else ["skdgp/integrations/botorch.py"]
