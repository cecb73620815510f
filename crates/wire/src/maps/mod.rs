//! Cluster maps: what every daemon and client agrees on.
