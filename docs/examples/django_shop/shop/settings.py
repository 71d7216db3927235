"""Django and pyjobs share one database, so that an order and its jobs are one transaction."""

import os
from pathlib import Path
from urllib.parse import urlsplit

BASE = Path(__file__).resolve().parent.parent
_url = urlsplit(os.environ.get("SHOP_DATABASE_URL", f"sqlite:///{BASE / 'shop.sqlite3'}"))

if _url.scheme == "sqlite":
    _database = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": _url.path[1:],
        "OPTIONS": {"timeout": 20},
        "TEST": {"NAME": BASE / "test.sqlite3"},  # a file, as another connection must see it
    }
else:
    _database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path[1:],
        "HOST": _url.hostname or "",
        "PORT": _url.port or "",
        "USER": _url.username or "",
        "PASSWORD": _url.password or "",
    }

DATABASES = {"default": _database}
EMAIL_BACKEND = "pyjobs.django.EmailBackend"
PYJOBS = {
    "JOBS": "shop.jobs:jobs",
    "EMAIL_BACKEND": os.environ.get("SHOP_EMAIL_BACKEND", "django.core.mail.backends.smtp.EmailBackend"),
    "USING": "default",
}
EMAIL_FILE_PATH = BASE / "mail"
DEFAULT_FROM_EMAIL = "shop@example.org"

SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "for trying it out")
ALLOWED_HOSTS = ["localhost"]
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"  # Django's own default would be Chicago's, for the worker's log too
