"""Integrations with other libraries; each needs its optional dependency (`pip install 'unspool[extra]'`)."""
