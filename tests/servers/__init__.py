"""The databases the tests run on: found where they are, started when first needed, ended afterwards."""
