"""Fitted estimators in other libraries."""
