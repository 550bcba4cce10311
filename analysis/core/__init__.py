"""The columnar checkers. They see tables and files only, and give findings with witnesses."""
