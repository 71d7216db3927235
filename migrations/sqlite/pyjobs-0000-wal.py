"""Write-ahead logging, with which readers and the one writer do not wait for each other.

SQLite refuses the switch within a transaction, and remembers it in the file. A rollback leaves it on: the file may
hold more than the jobs.
"""

from yoyo import step

__transactional__ = False

steps = [step(lambda connection: connection.execute("PRAGMA journal_mode = WAL").close())]
