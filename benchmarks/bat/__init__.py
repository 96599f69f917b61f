"""The parts of bat_table.py.

plan.py        what is measured, the primary quantities and their verdicts, fixed before the run
cells.py       the file of finished cells, which survives a kill
strictness.py  settings that reject equal shares of human tokens, and the shares on other texts
measures.py    sentence features, a trigram model, and the measures of a set of texts
languages.py   exact support on languages whose next-token distribution is known
report.py      means, intervals and tables
"""
