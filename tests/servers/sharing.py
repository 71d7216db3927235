"""Who runs what when several processes share a run (pytest-xdist): all tests on one kind of database are one process's.

So each server starts once, and what is the server's and not the database's (its roles, its global variables, a restart)
is met by no other test meanwhile, also on a server that a URL names. The longest go first: what is on no database fills
the gaps.

xdist's own way to say this, the mark ``xdist_group``, does nothing with pytest 9.2: a test's id is no longer read where
xdist 3.8 writes the group.
"""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

KIND = re.compile(r"[\[-](sqlite|postgresql-\d+|mariadb|mysql)[-\]]")


class ByDatabase(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(test: str) -> str:
    """The kind of database that a test runs on, by its id; else its file."""
    kind = KIND.search(test)
    return kind[1] if kind else test.partition("::")[0]
