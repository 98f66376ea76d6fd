"""Alerts: rules, the findings of a rule, and the incidents that findings open and close.

A rule names a condition and the subjects that it watches. The leader reads the facts, `findings`
decides which subjects meet the condition, `incidents` decides which incidents open, repeat and
close. No module here reads a clock or a store.
"""
