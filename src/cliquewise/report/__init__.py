"""Pictures and HTML, made of plain data: this room knows no estimator and no graph.

``blocks`` says what a page consists of, ``page`` writes it as one file that needs no network,
``faces`` are what notebooks show. Text of users is escaped or set as text, never as markup.
"""
