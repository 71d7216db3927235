"""The routines and views of this version. Rename this file with every release: its id is what sends them again."""

from yoyo import step

from pyjobs.install import routines

__depends__ = {"pyjobs-0001-tables"}
__transactional__ = False

steps = [step(*routines("mysql"))]
