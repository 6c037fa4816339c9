"""Assets: users' files that runs need, kept beside a data set and named by a digest.

A run that is resumed, a sweep and the other processes of a run no longer need the user's own files,
and runs with other content are others.
"""
