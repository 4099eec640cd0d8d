"""Problems: the objective of one data set. One file per kind."""
