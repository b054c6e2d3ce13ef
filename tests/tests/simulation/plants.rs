//! Every planted bug is found.
