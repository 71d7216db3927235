"""What ``pyjobs worker --app shop.worker:jobs`` imports: Django first, then the jobs."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from shop.jobs import jobs  # noqa: E402, F401
